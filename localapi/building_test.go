package localapi

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// While an index is being built, every source answers from the objects, and reports it in the
// status.
func TestIndexBuilding(t *testing.T) {
	db, _ := newBolt(t)
	fixture(t, db)
	started, blocked := make(chan struct{}), make(chan struct{})
	slow := store.LabelIndex("tier", "app")
	var calls atomic.Int64
	slow.Func = func(o *object.Object) []string {
		if calls.Add(1) == 1 { // by the build
			close(started)
			<-blocked
		}
		return store.LabelIndex("", "app").Func(o)
	}
	_, err := db.Open(storetest.Info("configmaps"), store.LabelIndex("app", "app"), slow)
	require.NoError(t, err)
	defer close(blocked) // before the database is closed, which waits for it
	<-started

	for _, tc := range []namedSource{
		{"bolt", FromDB(db, options(t, "bolt"))}, {"socket", serve(t, FromDB(db, options(t, "bolt")))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, err := tc.src.Status(context.Background())
			require.NoError(t, err)
			require.Equal(t, []string{"namespace", "app"}, status.Collections[0].Indexes)
			require.Equal(t, []string{"tier"}, status.Collections[0].Building)
			require.Empty(t, status.Collections[1].Building)
			complete, err := indexOf(context.Background(), tc.src, "configmaps", "app")
			require.NoError(t, err)
			values, err := indexOf(context.Background(), tc.src, "configmaps", "tier")
			require.NoError(t, err)
			require.NotEmpty(t, values)
			require.Equal(t, complete, values)
			for _, index := range []string{"app", "tier"} {
				keys, err := allKeys(tc.src, "configmaps", KeyQuery{Index: index, Value: "till"})
				require.NoError(t, err)
				require.Len(t, keys, 2, index)
			}
		})
	}
}
