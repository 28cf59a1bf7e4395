package localapi

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// A dump of many objects holds a few objects and buffers in the heap, never the collection.
func TestDumpMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 25 MB")
	}
	const count, size = 5_000, 5_000
	db, _ := newBolt(t)
	info := storetest.Info("configmaps")
	c, err := db.Open(info)
	require.NoError(t, err)
	r, err := c.Replace()
	require.NoError(t, err)
	for _, o := range many(count, size) {
		require.NoError(t, r.Apply([]store.Change{storetest.Put(o)}))
	}
	require.NoError(t, r.Commit(storetest.Checkpoint(5)))

	for _, tc := range []namedSource{
		{"db", FromDB(db, options(t, "bolt"))},
		{"socket", serve(t, FromDB(db, options(t, "bolt")))},
	} {
		runtime.GC()
		var before, m runtime.MemStats
		runtime.ReadMemStats(&before)
		var most uint64
		read := 0
		require.NoError(t, tc.src.Objects(context.Background(), []string{"configmaps"}, ObjectQuery{}, func(json []byte) error {
			if read++; read%1000 == 0 {
				runtime.GC()
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
			return nil
		}))
		require.Equal(t, count, read)
		require.Less(t, int64(most)-int64(before.HeapAlloc), int64(4<<20), tc.name)
	}
}
