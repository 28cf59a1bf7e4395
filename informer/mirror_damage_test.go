package informer_test

import (
	"fmt"
	"iter"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// damagedMirror returns a mirror of a collection with corrupt records of these keys, and the durable
// collection itself.
func damagedMirror(t *testing.T, keys []string, corrupt ...string) (m *informer.Mirror, durable store.Collection) {
	path := filepath.Join(t.TempDir(), "db")
	db := boltDB(t, path)
	c, err := db.Open(storetest.Info("test"))
	require.NoError(t, err)
	r, err := c.Replace()
	require.NoError(t, err)
	for i, key := range keys {
		ns := store.KeyNamespace(key)
		name := key
		if ns != "" {
			name = key[len(ns)+1:]
		}
		o := parse(t, fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"uid":"u","resourceVersion":"%d"}}`, ns, name, i+1))
		require.NoError(t, r.Apply([]store.Change{storetest.Put(o)}))
	}
	require.NoError(t, r.Commit(store.Checkpoint{RV: "100"}))
	require.NoError(t, db.Close())
	for _, key := range corrupt {
		damage(t, path, key)
	}
	db = boltDB(t, path)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	m, err = informer.OpenMirror(db, nil, storetest.Info("test"))
	require.NoError(t, err)
	durable, err = db.Open(storetest.Info("test"))
	require.NoError(t, err)
	return m, durable
}

// trace returns the elements and errors of an iteration.
func trace[T any](all iter.Seq2[T, error], name func(T) string) (got []string) {
	for item, err := range all {
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, name(item))
	}
	return got
}

// Through every method, a mirror reports corrupt records as the durable collection does.
func TestMirrorOfCorruptRecords(t *testing.T) {
	keys := []string{"a", "a-b/x", "a-b/y", "a/x", "a/y", "b/x", "z"}
	m, durable := damagedMirror(t, keys, "a", "a-b/y", "a/x", "z")
	got, err := m.View()
	require.NoError(t, err)
	defer got.Close()
	want, err := durable.View()
	require.NoError(t, err)
	defer want.Close()
	for _, prefix := range []string{"", "a", "a/", "b", "none"} {
		for _, after := range append(keys, "", "a-", "zz") {
			objects := func(v store.View) []string { return trace(v.Objects(prefix, after), (*object.Object).Key) }
			headers := func(v store.View) []string {
				return trace(v.Headers(prefix, after), func(h store.Header) string { return h.Key })
			}
			records := func(v store.View) []string {
				return trace(v.Records(prefix, after), func(r store.Record) string { return r.Key })
			}
			inNamespace := func(v store.View) []string {
				return trace(v.IndexKeys(store.NamespaceIndex, prefix, after), func(key string) string { return key })
			}
			entries := func(v store.View) []string {
				at := store.IndexEntry{Value: store.KeyNamespace(after), Key: after}
				return trace(v.IndexEntries(store.NamespaceIndex, prefix, at), func(e store.IndexEntry) string { return e.Value + "|" + e.Key })
			}
			for i, read := range []func(store.View) []string{objects, headers, records, inNamespace, entries} {
				require.Equal(t, read(want), read(got), "%d: %q after %q", i, prefix, after)
			}
		}
	}
	for _, key := range append(keys, "none") {
		_, wantErr := want.Get(key)
		_, gotErr := got.Get(key)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(gotErr))
		wantHeader, wantErr := want.Header(key)
		gotHeader, gotErr := got.Header(key)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(gotErr))
		if wantErr == nil {
			require.Equal(t, wantHeader, gotHeader)
		}
	}
	known, err := informer.KnownObjects{Collection: m}.Keys()
	require.NoError(t, err)
	require.ElementsMatch(t, keys, known)
	for range got.Objects("", "") {
		break // an iteration may end early
	}

	// A change of its key ends the corruption, also in a view that was opened meanwhile.
	require.NoError(t, m.Apply(store.Batch{Changes: []store.Change{{Key: "a"}, storetest.Put(obj("new", "u", 101))}}))
	require.Equal(t, map[string]string{"a-b/y": "corrupt", "a/x": "corrupt", "z": "corrupt"}, corruptOf(contents(t, m)))
	r, err := m.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply([]store.Change{{Key: "a-b/y"}, {Key: "a/x"}, {Key: "z"}}))
	require.NotEmpty(t, corruptOf(contents(t, m)), "until the commit")
	require.NoError(t, r.Commit(store.Checkpoint{RV: "102"}))
	require.Empty(t, corruptOf(contents(t, m)))
	require.Equal(t, contents(t, durable), contents(t, m))
}

func corruptOf(all map[string]string) map[string]string {
	corrupt := map[string]string{}
	for key, state := range all {
		if state == "corrupt" {
			corrupt[key] = state
		}
	}
	return corrupt
}

// If a write is durable but fails in memory, readers keep the state before it; the next write loads
// the durable state.
func TestMirrorBehind(t *testing.T) {
	m, durable := damagedMirror(t, []string{"ns/a"})
	put := func(name string, rv int) store.Batch {
		return store.Batch{Changes: []store.Change{storetest.Put(obj(name, "u", rv))}, Checkpoint: store.Checkpoint{RV: strconv.Itoa(rv)}}
	}
	before := contents(t, m)
	_, inMemory := informer.MirrorMemory(m)
	r, err := inMemory.Replace() // makes the memory refuse changes
	require.NoError(t, err)
	require.ErrorIs(t, m.Apply(put("b", 101)), store.ErrReplacing)
	require.Equal(t, before, contents(t, m))
	require.Equal(t, "100", m.State().RV)
	require.NoError(t, m.Apply(put("c", 102)))
	require.NoError(t, r.Abort())
	require.Equal(t, map[string]string{"a": "1", "b": "101", "c": "102"}, contents(t, m))
	require.Equal(t, contents(t, durable), contents(t, m))
	require.Equal(t, "102", m.State().RV)
	require.True(t, m.State().Synced)

	r, err = m.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply([]store.Change{{Key: "ns/b"}}))
	db, _ := informer.MirrorMemory(m)
	require.NoError(t, db.Drop("test"))
	require.ErrorIs(t, r.Commit(store.Checkpoint{RV: "103"}), store.ErrNoCollection)
	require.NoError(t, r.Commit(store.Checkpoint{RV: "103"}), "a retry")
	require.Equal(t, map[string]string{"a": "1", "c": "102"}, contents(t, m))
	require.Equal(t, "103", m.State().RV)
	require.Error(t, r.Commit(store.Checkpoint{RV: "103"}), "it has ended")
}

// unreadableDB is a store whose records at key a have other bytes.
type unreadableDB struct {
	store.DB
	decode func(key string, stored, buf []byte) ([]byte, error)
}

func (db unreadableDB) Open(info store.Info, indexes ...store.Index) (store.Collection, error) {
	c, err := db.DB.Open(info, indexes...)
	return unreadable{c, db}, err
}

type unreadable struct {
	store.Collection
	db unreadableDB
}

func (c unreadable) View() (store.View, error) {
	v, err := c.Collection.View()
	return unreadableView{v, c.db}, err
}

type unreadableView struct {
	store.View
	db unreadableDB
}

func (v unreadableView) Records(prefix, after string) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for r, err := range v.View.Records(prefix, after) {
			if r.Key == "ns/a" {
				r.Object, r.Decode = nil, v.db.decode
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// A record whose header can be read, and whose object can't, is corrupt too; any other error fails
// the opening.
func TestMirrorOfUnreadableObjects(t *testing.T) {
	for _, c := range []struct {
		name   string
		decode func(key string, stored, buf []byte) ([]byte, error)
		fails  bool
	}{
		{"corrupt", func(key string, _, _ []byte) ([]byte, error) { return nil, &store.CorruptionError{Key: key} }, false},
		{"no object", func(string, []byte, []byte) ([]byte, error) { return []byte("{}"), nil }, false},
		{"another error", func(string, []byte, []byte) ([]byte, error) { return nil, store.ErrClosed }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := unreadableDB{memory.New(), c.decode}
			coll, err := db.Open(storetest.Info("test"))
			require.NoError(t, err)
			require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{storetest.Put(obj("a", "1", 3)), storetest.Put(obj("b", "2", 5))}}))
			m, err := informer.OpenMirror(db, nil, storetest.Info("test"))
			if c.fails {
				require.ErrorIs(t, err, store.ErrClosed)
				return
			}
			require.NoError(t, err)
			require.Equal(t, map[string]string{"a": "corrupt", "b": "5"}, contents(t, m))
			_, err = m.Header("ns/a")
			require.ErrorAs(t, err, new(*store.CorruptionError))
		})
	}
}
