package informer_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// The objects of an informer with a durable store are there when the next one starts, at once and
// without the server; then come the changes since, without a list.
func TestDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		db := boltDB(t, path)
		s.put("a")
		s.put("b")
		inf := newInformer(s, informer.WithStore(db, "pods"))
		r := run(t, inf)
		synctest.Wait()
		require.Equal(t, 1, s.counts())
		r.stop()
		require.NoError(t, db.Close())

		// While it is away.
		s.put("c")
		s.put("a")
		s.remove("b")
		db = boltDB(t, path)
		down := errors.New("no route to host")
		s.set(func(s *server) { s.listErr, s.watchErr = down, down })
		inf = newInformer(s, informer.WithStore(db, "pods"))
		h, reg := subscribe(t, inf)
		r = run(t, inf)
		synctest.Wait()
		require.True(t, inf.HasSynced())
		require.True(t, reg.HasSynced())
		require.Equal(t, []string{"add a@1 true", "add b@2 true"}, h.take(), "the initial list has the state at the checkpoint")
		late, _ := subscribe(t, inf)
		synctest.Wait()
		require.Equal(t, []string{"add a@1 true", "add b@2 true"}, late.take())

		s.set(func(s *server) { s.listErr, s.watchErr = nil, nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ElementsMatch(t, []string{"add c@3 false", "update a@1 a@4", "delete b@5"}, h.take())
		require.Zero(t, s.counts(), "the watch resumed")
		r.stop()
		require.NoError(t, db.Close())

		// The server has compacted the checkpoint: one list, of which handlers get the differences.
		s.remove("c")
		s.put("d")
		s.set(func(s *server) { s.compacted = s.rv })
		db = boltDB(t, path)
		inf = newInformer(s, informer.WithStore(db, "pods"))
		h, _ = subscribe(t, inf)
		r = run(t, inf)
		synctest.Wait()
		require.ElementsMatch(t, []string{"add a@4 true", "add c@3 true", "add d@7 false", "delete unknown c@3"}, h.take())
		require.Equal(t, 1, s.counts())
		r.stop()
		require.NoError(t, db.Close())
	})
}

// Each condition under which a checkpoint does not hold makes a list; until it is complete,
// handlers have the stored objects.
func TestUnusableCheckpointLists(t *testing.T) {
	cluster := func(name string) informer.Option {
		return informer.WithIdentity(func(context.Context) (string, error) { return "uid:" + name, nil })
	}
	scope := informer.WithScope
	transform := func(inf cache.SharedIndexInformer) error {
		return inf.SetTransform(func(o any) (any, error) {
			o.(*corev1.Pod).Labels = nil
			return o, nil
		})
	}
	for _, c := range []struct {
		name          string
		first, second []informer.Option
		prepare       func(cache.SharedIndexInformer) error
		lists         int
	}{
		{name: "the same", lists: 0},
		{name: "another cluster", first: []informer.Option{cluster("x")}, second: []informer.Option{cluster("y")}, lists: 1},
		{name: "the same cluster", first: []informer.Option{cluster("x")}, second: []informer.Option{cluster("x")}, lists: 0},
		{name: "another selector", second: []informer.Option{scope(store.Scope{LabelSelector: "app=a"})}, lists: 1},
		{name: "an unnamed transform", prepare: transform, lists: 1},
		{name: "a transform that came", second: []informer.Option{scope(store.Scope{Transform: "bare"})}, prepare: transform, lists: 1},
		{
			name:  "a transform that is the same",
			first: []informer.Option{scope(store.Scope{Transform: "bare"})}, second: []informer.Option{scope(store.Scope{Transform: "bare"})},
			prepare: transform, lists: 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, db := newServer(), memory.New()
				s.put("a")
				r := run(t, newInformer(s, append(c.first, informer.WithStore(db, "pods"))...))
				synctest.Wait()
				r.stop()
				s.counts()
				inf := newInformer(s, append(c.second, informer.WithStore(db, "pods"), informer.WithDecoded(10))...)
				if c.prepare != nil {
					require.NoError(t, c.prepare(inf))
				}
				h, _ := subscribe(t, inf)
				r = run(t, inf)
				synctest.Wait()
				require.Equal(t, "add a@1 true", h.take()[0])
				require.Equal(t, c.lists, s.counts())
				if c.prepare != nil && c.lists > 0 {
					p, _, err := inf.GetStore().GetByKey("ns/a")
					require.NoError(t, err)
					require.Empty(t, p.(*corev1.Pod).Labels, "the new transform applies to an object with an unchanged resourceVersion")
				}
				r.stop()
			})
		})
	}
}

// A list that changes the stored objects under the same resourceVersions removes their old values
// from the indexes.
func TestIndexesAfterForcedList(t *testing.T) {
	byApp := cache.Indexers{"app": func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Labels["app"]}, nil }}
	synctest.Test(t, func(t *testing.T) {
		s, path := newServer(), filepath.Join(t.TempDir(), "db")
		s.put("a")
		s.put("b")
		for _, transform := range []cache.TransformFunc{nil, func(o any) (any, error) {
			o.(*corev1.Pod).Labels = map[string]string{"app": "other"}
			return o, nil
		}} {
			db := boltDB(t, path)
			inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, byApp, informer.WithStore(db, "pods"), informer.WithIndexVersion("app", "1"))
			require.NoError(t, inf.SetTransform(transform))
			h, _ := subscribe(t, inf)
			r := run(t, inf)
			synctest.Wait()
			want := []string{"a", "b"}
			if transform != nil {
				want = []string{"other"}
				require.ElementsMatch(t, []string{"add a@1 true", "add b@2 true", "update a@1 a@1", "update b@2 b@2"}, h.take())
			}
			require.Equal(t, want, inf.GetIndexer().ListIndexFuncValues("app"))
			r.stop()
			require.NoError(t, db.Close())
		}
	})
}

// As with client-go, a synced informer has its indexes: a durable one builds an index without a version at
// each start, and until then neither it nor a handler has synced. The handlers get the objects meanwhile.
func TestSyncedWithIndexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := newServer(), filepath.Join(t.TempDir(), "db")
		s.put("a")
		s.put("b")
		for start := range 2 {
			build := make(chan struct{})
			byApp := cache.Indexers{"app": func(o any) ([]string, error) {
				<-build
				return []string{o.(*corev1.Pod).Labels["app"]}, nil
			}}
			db := boltDB(t, path)
			inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, byApp, informer.WithStore(db, "pods"))
			if start == 0 {
				close(build) // the list fills the index
			}
			h, reg := subscribe(t, inf)
			r := run(t, inf)
			synctest.Wait()
			late, lateReg := subscribe(t, inf)
			synctest.Wait()
			delivered := h.take()
			synced := []bool{inf.HasSynced(), reg.HasSynced(), lateReg.HasSynced()}
			if start == 1 {
				close(build) // also if the test fails
				synctest.Wait()
			}
			require.Len(t, delivered, 2)
			require.Len(t, late.take(), 2)
			require.Equal(t, []bool{start == 0, start == 0, start == 0}, synced)
			for _, has := range []func() bool{inf.HasSynced, reg.HasSynced, lateReg.HasSynced} {
				require.True(t, has())
			}
			found, err := inf.GetIndexer().ByIndex("app", "a")
			require.NoError(t, err)
			require.Len(t, found, 1)
			r.stop()
			require.NoError(t, db.Close())
		}
	})
}

// An informer retries to open its store until that succeeds.
func TestStoreOpenIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.put("a")
		db := &closedFor{DB: memory.New(), times: 3}
		inf := newInformer(s, informer.WithStore(db, "pods"))
		h, _ := subscribe(t, inf)
		r := run(t, inf)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"add a@1 true"}, h.take())
		r.stop()
	})
}

// closedFor is a store whose collections can't be opened at first.
type closedFor struct {
	store.DB
	times int
}

func (db *closedFor) Open(info store.Info, indexes ...store.Index) (store.Collection, error) {
	if db.times--; db.times >= 0 {
		return nil, errors.New("not yet")
	}
	return db.DB.Open(info, indexes...)
}
