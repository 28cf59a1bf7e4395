package database

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
)

var info = store.Info{ID: "configmaps", Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}

// fill stores n objects of info's kind in a collection at a resourceVersion, 0 for one that is not synced.
func fill(t *testing.T, db store.DB, id string, n, rv int) {
	t.Helper()
	info := info
	info.ID = id
	c, err := db.Open(info)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	require.NoError(t, c.Describe(store.Description{Singular: id}))
	if rv == 0 {
		return
	}
	r, err := c.Replace()
	require.NoError(t, err)
	for i := range n {
		o, err := object.Parse(fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"shop","name":"c%d","uid":"u%d","resourceVersion":"%d"}}`, i, i, rv))
		require.NoError(t, err)
		require.NoError(t, r.Apply([]store.Change{{Key: o.Key(), Object: o}}))
	}
	require.NoError(t, r.Commit(store.Checkpoint{RV: fmt.Sprint(rv), Cluster: "uid:1", LastList: time.Unix(1_000_000, 0).UTC()}))
}

// content returns what a view of a collection shows.
func content(t *testing.T, db store.DB, id string) (store.State, store.Description, []string) {
	t.Helper()
	v, err := db.View(id)
	require.NoError(t, err)
	defer v.Close()
	d, err := v.Description()
	require.NoError(t, err)
	var objects []string
	for o, err := range v.Objects("", "") {
		require.NoError(t, err)
		objects = append(objects, string(o.Raw()))
	}
	return v.State(), d, objects
}

// TestCopy: the file has all of the collections in memory that were complete, as they were, and keeps its own.
func TestCopy(t *testing.T) {
	from := memory.New()
	sizes := map[string]int{"empty": 0, "one": 1, "some": copied, "more": 2*copied + 1}
	for id, n := range sizes {
		fill(t, from, id, n, 7)
	}
	fill(t, from, "never", 0, 0)
	fill(t, from, "own", 3, 7)
	path := filepath.Join(t.TempDir(), "db")
	to, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	fill(t, to, "own", 2, 5)
	require.NoError(t, Copy(to, from))
	require.NoError(t, to.Close())

	to, err = bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, to.Close()) }()
	for id := range sizes {
		wantState, wantDescription, want := content(t, from, id)
		state, description, objects := content(t, to, id)
		require.Equal(t, wantState, state, id)
		require.Equal(t, wantDescription, description, id)
		require.Equal(t, want, objects, id)
	}
	_, err = to.View("never")
	require.ErrorIs(t, err, store.ErrNoCollection)
	state, _, objects := content(t, to, "own")
	require.Equal(t, "5", state.RV)
	require.Len(t, objects, 2)
}

// full is a database that can't be flushed.
type full struct{ store.DB }

var errFull = errors.New("full")

func (full) Flush() error { return errFull }

// TestCopy_Fails: what can't be copied is reported.
func TestCopy_Fails(t *testing.T) {
	from := memory.New()
	fill(t, from, "one", 1, 7)
	require.ErrorIs(t, Copy(full{memory.New()}, from), errFull)
	closed := memory.New()
	require.NoError(t, closed.Close())
	require.Error(t, Copy(closed, from))
}
