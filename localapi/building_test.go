package localapi

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// While an index is being built, every source returns an error for it and answers everything else.
func TestIndexBuilding(t *testing.T) {
	db, _ := newBolt(t)
	fixture(t, db)
	blocked := make(chan struct{})
	slow := store.LabelIndex("tier", "tier")
	slow.Func = func(*object.Object) []string { <-blocked; return nil }
	_, err := db.Open(storetest.Info("configmaps"), store.LabelIndex("app", "app"), slow)
	require.NoError(t, err)
	defer close(blocked) // before the database is closed, which waits for it

	for where, src := range map[string]Source{
		"bolt": FromDB(db, options(t, "bolt")), "socket": serve(t, FromDB(db, options(t, "bolt"))),
	} {
		t.Run(where, func(t *testing.T) {
			status, err := src.Status(context.Background())
			require.NoError(t, err)
			require.Equal(t, []string{"namespace", "app"}, status.Collections[0].Indexes)
			require.Equal(t, []string{"tier"}, status.Collections[0].Building)
			require.Empty(t, status.Collections[1].Building)
			_, err = indexOf(context.Background(), src, "configmaps", "tier")
			require.ErrorIs(t, err, store.ErrIndexBuilding)
			require.EqualError(t, err, "collection configmaps: tier: index is being built: try again soon, or read without it")
			_, err = allKeys(src, "configmaps", KeyQuery{Index: "tier", Value: "x"})
			require.ErrorIs(t, err, store.ErrIndexBuilding)
			keys, err := allKeys(src, "configmaps", KeyQuery{Index: "app", Value: "till"})
			require.NoError(t, err)
			require.Len(t, keys, 2)
		})
	}
}
