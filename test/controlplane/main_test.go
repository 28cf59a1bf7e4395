package controlplane_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks that a stopped control plane leaves nothing behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
