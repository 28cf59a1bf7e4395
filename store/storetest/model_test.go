package storetest_test

import (
	"iter"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// view is a view of a correct store; each test makes one of its methods wrong.
type view struct {
	store.View
	info    func(store.Info) store.Info
	state   func(store.State) store.State
	get     func(*object.Object, error) (*object.Object, error)
	raw     func([]byte, error) ([]byte, error)
	header  func(store.Header) store.Header
	objects func(iter.Seq2[*object.Object, error]) iter.Seq2[*object.Object, error]
	headers func(iter.Seq2[store.Header, error]) iter.Seq2[store.Header, error]
	records func(iter.Seq2[store.Record, error]) iter.Seq2[store.Record, error]
	indexes func([]string) []string
	keys    func(iter.Seq2[string, error]) iter.Seq2[string, error]
	entries func(iter.Seq2[store.IndexEntry, error]) iter.Seq2[store.IndexEntry, error]
}

// spoil returns f(x), or x if f is nil.
func spoil[X any](f func(X) X, x X) X {
	if f == nil {
		return x
	}
	return f(x)
}

func (v view) Info() store.Info   { return spoil(v.info, v.View.Info()) }
func (v view) State() store.State { return spoil(v.state, v.View.State()) }
func (v view) Indexes() []string  { return spoil(v.indexes, v.View.Indexes()) }

func (v view) Get(key string) (*object.Object, error) {
	o, err := v.View.Get(key)
	if v.get == nil {
		return o, err
	}
	return v.get(o, err)
}

func (v view) Raw(key string, buf []byte) ([]byte, error) {
	raw, err := v.View.Raw(key, buf)
	if v.raw == nil {
		return raw, err
	}
	return v.raw(raw, err)
}

func (v view) Header(key string) (store.Header, error) {
	h, err := v.View.Header(key)
	return spoil(v.header, h), err
}

func (v view) Objects(prefix, after string) iter.Seq2[*object.Object, error] {
	return spoil(v.objects, v.View.Objects(prefix, after))
}

func (v view) Records(prefix, after string) iter.Seq2[store.Record, error] {
	return spoil(v.records, v.View.Records(prefix, after))
}

func (v view) Headers(prefix, after string) iter.Seq2[store.Header, error] {
	return spoil(v.headers, v.View.Headers(prefix, after))
}

func (v view) IndexKeys(index, value, after string) iter.Seq2[string, error] {
	return spoil(v.keys, v.View.IndexKeys(index, value, after))
}

func (v view) IndexEntries(index, prefix string, after store.IndexEntry) iter.Seq2[store.IndexEntry, error] {
	return spoil(v.entries, v.View.IndexEntries(index, prefix, after))
}

// skipFirst skips the first item of an iteration.
func skipFirst[E any](seq iter.Seq2[E, error]) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		n := 0
		for e, err := range seq {
			if n++; n > 1 && !yield(e, err) {
				return
			}
		}
	}
}

// addOne repeats the last item of an iteration.
func addOne[E any](seq iter.Seq2[E, error]) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var last E
		for e, err := range seq {
			if last = e; !yield(e, err) {
				return
			}
		}
		yield(last, nil)
	}
}

// A difference that the model does not find is one that no test of the suite finds.
func TestModelSeesEveryDifference(t *testing.T) {
	db := memory.New()
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	indexes := []store.Index{store.LabelIndex("app", "app")}
	model := storetest.NewModel(storetest.Info("a"), indexes...)
	coll, err := db.Open(storetest.Info("a"), indexes...)
	require.NoError(t, err)
	changes := []store.Change{
		storetest.Put(storetest.Object("shop", "x", "u1", "1", map[string]string{"app": "till"}, "p")),
		storetest.Put(storetest.Object("shop", "y", "u2", "2", map[string]string{"app": "door"}, "p")),
	}
	r, err := coll.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply(changes))
	require.NoError(t, r.Commit(storetest.Checkpoint(2)))
	model.Replace(storetest.Info("a"), changes, storetest.Checkpoint(2))
	v, err := coll.View()
	require.NoError(t, err)
	t.Cleanup(v.Close)
	require.NoError(t, model.Diff(view{View: v}))

	other := storetest.Object("shop", "x", "u1", "1", map[string]string{"app": "till"}, "q")
	for _, tc := range []struct {
		name    string
		spoiled view
	}{
		{"info", view{info: func(i store.Info) store.Info { i.Transform = "x"; return i }}},
		{"checkpoint", view{state: func(s store.State) store.State { s.RV = "1"; return s }}},
		{"time of checkpoint", view{state: func(s store.State) store.State { s.LastEvent = s.LastList; return s }}},
		{"synced", view{state: func(s store.State) store.State { s.Synced = false; return s }}},
		{"count", view{state: func(s store.State) store.State { s.Count++; return s }}},
		{"bytes", view{state: func(s store.State) store.State { s.Bytes--; return s }}},
		{"another object", view{get: func(_ *object.Object, err error) (*object.Object, error) { return other, err }}},
		{"an error", view{get: func(o *object.Object, _ error) (*object.Object, error) { return o, store.ErrNotFound }}},
		{"an object too many", view{get: func(*object.Object, error) (*object.Object, error) { return other, nil }}},
		{"other bytes", view{raw: func(_ []byte, err error) ([]byte, error) { return other.Raw(), err }}},
		{"no bytes", view{raw: func(raw []byte, _ error) ([]byte, error) { return raw, store.ErrNotFound }}},
		{"bytes too many", view{raw: func([]byte, error) ([]byte, error) { return other.Raw(), nil }}},
		{"header's RV", view{header: func(h store.Header) store.Header { h.RV = ""; return h }}},
		{"header's UID", view{header: func(h store.Header) store.Header { h.UID = ""; return h }}},
		{"header's bytes", view{header: func(h store.Header) store.Header { h.Bytes++; return h }}},
		{"objects too few", view{objects: skipFirst[*object.Object]}},
		{"objects too many", view{objects: addOne[*object.Object]}},
		{"headers too few", view{headers: skipFirst[store.Header]}},
		{"headers too many", view{headers: addOne[store.Header]}},
		{"records too few", view{records: skipFirst[store.Record]}},
		{"an index too many", view{indexes: func(names []string) []string { return append(names, "z") }}},
		{"an index too few", view{indexes: func([]string) []string { return nil }}},
		{"keys too few", view{keys: skipFirst[string]}},
		{"keys too many", view{keys: addOne[string]}},
		{"entries too few", view{entries: skipFirst[store.IndexEntry]}},
		{"entries too many", view{entries: addOne[store.IndexEntry]}},
	} {
		tc.spoiled.View = v
		require.Error(t, model.Diff(tc.spoiled), tc.name)
	}
}
