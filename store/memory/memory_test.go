package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a store in memory for the suite.
type harness struct{ db *memory.DB }

func (h harness) DB() store.DB         { return h.db }
func (h harness) Durable() bool        { return false }
func (h harness) Settle(storetest.T)   {}
func (h harness) Reopen(t storetest.T) { t.Fatalf("a store in memory can't be reopened") }

func TestSuite(t *testing.T) {
	storetest.Run(t, func(t storetest.T) storetest.Harness {
		db := memory.New()
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return harness{db}
	})
}
