package objects

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks that seeding and churning leave nothing behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
