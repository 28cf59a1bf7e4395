package main

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks that the supervisor leaves nothing behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
