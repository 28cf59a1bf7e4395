package storetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// T is the part of *testing.T that the suite uses. *rapid.T implements it too, so each run of the
// property test opens a store of its own.
type T interface {
	Helper()
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	FailNow()
}

// Harness is a store under test.
type Harness interface {
	// DB returns the open store.
	DB() store.DB

	// Reopen closes the store and opens its content again; DB returns the new store. It is
	// called only if Durable returns true, with all views closed.
	Reopen(t T)

	// Durable reports whether the content remains after the store is closed. Only a durable store keeps
	// a history.
	Durable() bool

	// Settle blocks until the indexes of all open collections are complete. It is called only
	// while no replacement is open.
	Settle(t T)
}

// Run runs the suite. open returns an empty store each time and closes it in t.Cleanup; some tests
// have closed it already. Views stay open for as long as a test takes: a store that limits their
// lifetime needs a limit that is long enough.
func Run(t *testing.T, open func(t T) Harness) {
	for _, tc := range []struct {
		name    string
		rules   []rule
		history bool // only for stores with a history
	}{
		{name: "Sync", rules: syncRules},
		{name: "Apply", rules: applyRules},
		{name: "View", rules: viewRules},
		{name: "Replace", rules: replaceRules},
		{name: "Open", rules: openRules},
		{name: "Owner", rules: ownerRules},
		{name: "Describe", rules: describeRules},
		{name: "Index", rules: indexRules},
		{name: "Close", rules: closeRules},
		{name: "Concurrent", rules: concurrentRules},
		{name: "History", rules: historyRules, history: true},
		{name: "Attributes", rules: attributesRules, history: true},
		{name: "Reopen", rules: reopenRules},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, r := range tc.rules {
				t.Run(r.name, func(t *testing.T) {
					h := open(t)
					if (r.durable || tc.history) && !h.Durable() {
						t.Skip("the store is not durable")
					}
					r.run(t, h)
				})
			}
		})
	}
	t.Run("Property", func(t *testing.T) { property(t, open) })
}

// rule is a test of one documented rule.
type rule struct {
	name    string
	durable bool // only for durable stores
	run     func(t *testing.T, h Harness)
}

// subject is a collection under test with its model.
type subject struct {
	h     Harness
	db    store.DB // that coll is of
	coll  store.Collection
	want  store.Info // the newest argument of Open
	model *Model
}

// newSubject opens a new collection.
func newSubject(t T, h Harness, info store.Info, indexes ...store.Index) *subject {
	t.Helper()
	s := &subject{h: h, model: NewModel(info, indexes...)}
	s.open(t, info, indexes...)
	return s
}

// open opens the collection, or opens it again.
func (s *subject) open(t T, info store.Info, indexes ...store.Index) {
	t.Helper()
	var err error
	if s.coll != nil && s.db == s.h.DB() {
		err = s.coll.Reopen(info, indexes...)
	} else {
		s.db = s.h.DB()
		s.coll, err = s.db.Open(info, indexes...)
	}
	require.NoError(t, err)
	s.want = info
	s.model.Open(info, indexes...)
}

// close gives the collection up. The next open is another opening.
func (s *subject) close(t T) {
	t.Helper()
	require.NoError(t, s.coll.Close())
	s.coll = nil
}

// settle waits for the collection's indexes.
func (s *subject) settle(t T) {
	t.Helper()
	s.h.Settle(t)
	s.model.Building = nil
}

// reopen reopens the whole store and then the collection as it was.
func (s *subject) reopen(t T) {
	t.Helper()
	s.h.Reopen(t)
	s.open(t, s.want, s.model.opened()...)
}

// apply applies a batch to the collection and its model.
func (s *subject) apply(t T, cp store.Checkpoint, changes ...store.Change) {
	t.Helper()
	s.applyBatch(t, store.Batch{Changes: changes, Checkpoint: cp})
}

func (s *subject) applyBatch(t T, b store.Batch) {
	t.Helper()
	s.model.Apply(b)
	b.Changes = slices.Clone(b.Changes)
	require.NoError(t, s.coll.Apply(b))
	clear(b.Changes) // the store does not keep them
}

// replace replaces the content of the collection and its model.
func (s *subject) replace(t T, cp store.Checkpoint, changes ...store.Change) {
	t.Helper()
	r := s.begin(t)
	require.NoError(t, r.Apply(changes))
	s.commit(t, r, cp, changes...)
}

// begin starts a replacement that ends with the test at the latest.
func (s *subject) begin(t T) store.Replacement {
	t.Helper()
	r, err := s.coll.Replace()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Abort() })
	return r
}

// commit commits a replacement to which changes were applied.
func (s *subject) commit(t T, r store.Replacement, cp store.Checkpoint, changes ...store.Change) {
	t.Helper()
	require.NoError(t, r.Commit(cp))
	s.model.Replace(s.want, changes, cp)
}

// view returns a view that is closed with the test at the latest, because the Close of a store
// waits for its views.
func (s *subject) view(t T) store.View {
	t.Helper()
	v, err := s.coll.View()
	require.NoError(t, err)
	t.Cleanup(v.Close)
	return v
}

// check requires that the collection equals its model through every method of reading it.
func (s *subject) check(t T) {
	t.Helper()
	if s.coll != nil {
		require.Equal(t, s.model.Info, s.coll.Info(), "Collection.Info")
		if got, want := s.coll.State(), s.model.State(); !sameState(got, want) {
			t.Fatalf("Collection.State: %+v, want %+v", got, want)
		}
		require.NoError(t, s.model.DiffLists(s.coll))
		v := s.view(t)
		s.model.Equal(t, v)
		v.Close()
	}
	v, err := s.h.DB().View(s.model.Info.ID)
	require.NoError(t, err)
	t.Cleanup(v.Close)
	s.model.Equal(t, v)
	v.Close()
}
