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

func TestNoHistory(t *testing.T) {
	db := memory.New()
	defer func() { require.NoError(t, db.Close()) }()
	c, err := db.Open(storetest.Info("configmaps"))
	require.NoError(t, err)
	require.NoError(t, c.Apply(store.Batch{
		Changes: []store.Change{storetest.Put(storetest.Object("shop", "a", "u", "5", nil, ""))}, Checkpoint: storetest.Checkpoint(5),
	}))
	v, err := c.View()
	require.NoError(t, err)
	defer v.Close()
	horizon, err := v.Horizon()
	require.NoError(t, err)
	require.Zero(t, horizon)
	for _, since := range []string{"", "4", "5"} {
		events := 0
		for _, err := range v.Changes(since) {
			events++
			require.ErrorIs(t, err, store.ErrNoHistory)
		}
		require.Equal(t, 1, events)
	}
}
