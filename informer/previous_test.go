package informer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// previousServer makes the changes that an informer of the version before stored in the collection
// pods of store/bolt's testdata/previous-*.db.gz. See TestPreviousVersion of package bolt.
func previousServer(inUse bool) *server {
	s := newServer()
	for i := range 12 {
		s.put(string(rune('a' + i)))
	}
	s.put("a")
	s.remove("b")
	if inUse { // the rest is in the journal
		s.put("m")
		s.put("b") // another object under the same name
		s.remove("c")
		s.elsewhere()
	}
	return s
}

// TestPreviousVersionResumes runs an informer on files of the version before: while the server is
// down it has exactly the stored objects, and then it resumes at the stored checkpoint, without a
// list.
func TestPreviousVersionResumes(t *testing.T) {
	byLabel := func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Labels["app"]}, nil }
	for _, file := range []struct {
		name  string
		inUse bool
	}{
		{"previous-clean.db.gz", false},
		{"previous-open.db.gz", true},
	} {
		t.Run(file.name, func(t *testing.T) {
			path := storetest.Gunzip(t, "../store/bolt/testdata/"+file.name)
			synctest.Test(t, func(t *testing.T) {
				s := previousServer(file.inUse)
				down := errors.New("no route to host")
				s.set(func(s *server) { s.listErr, s.watchErr = down, down })
				db := boltDB(t, path)
				inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0,
					cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "node": byNode, "app": byLabel},
					informer.WithStore(db, "pods"), informer.WithScheme(core()),
					informer.WithIndexVersion("node", "1"), informer.WithIndexVersion("app", "1"),
					informer.WithIdentity(func(context.Context) (string, error) { return "uid:1111-2222", nil }))
				h, _ := subscribe(t, inf)
				r := run(t, inf)
				synctest.Wait()
				var adds []string
				nodes := map[string][]string{}
				for name, p := range s.objects {
					adds = append(adds, fmt.Sprintf("add %s@%s true", name, p.ResourceVersion))
					nodes[p.Spec.NodeName] = append(nodes[p.Spec.NodeName], "ns/"+name)
					got, exists, err := inf.GetStore().GetByKey("ns/" + name)
					require.NoError(t, err)
					require.True(t, exists)
					require.Equal(t, p, got)
					apps, err := inf.GetIndexer().IndexKeys("app", name)
					require.NoError(t, err)
					require.Equal(t, []string{"ns/" + name}, apps)
				}
				require.ElementsMatch(t, adds, h.take())
				for node, keys := range nodes {
					got, err := inf.GetIndexer().IndexKeys("node", node)
					require.NoError(t, err)
					require.ElementsMatch(t, keys, got)
				}
				require.ElementsMatch(t, slices.Collect(maps.Keys(nodes)), inf.GetIndexer().ListIndexFuncValues("node"))

				s.put("z")
				s.remove("d")
				s.counts()
				s.set(func(s *server) { s.listErr, s.watchErr = nil, nil })
				time.Sleep(time.Minute)
				synctest.Wait()
				require.ElementsMatch(t, []string{fmt.Sprintf("add z@%d false", s.rv-1), fmt.Sprintf("delete d@%d", s.rv)}, h.take())
				require.Zero(t, s.counts(), "lists of a resume")
				r.stop()

				// Records become protobuf as they change.
				require.Equal(t, map[string]bool{"ns/z": true}, protobufOf(t, db, true))
				require.Len(t, protobufOf(t, db, false), len(s.objects)-1)
				require.NoError(t, db.Close())
			})
		})
	}
}

// protobufOf returns the keys of the stored pods that are protobuf, or else of those that are JSON.
func protobufOf(t *testing.T, db store.DB, protobuf bool) map[string]bool {
	v, err := db.View("pods")
	require.NoError(t, err)
	defer v.Close()
	keys := map[string]bool{}
	for o, err := range v.Objects("", "") {
		require.NoError(t, err)
		if o.Protobuf() == protobuf {
			keys[o.Key()] = true
		}
	}
	return keys
}

// TestStoredFormsMixed has one collection with records of both forms: readers, indexes and handlers do not
// distinguish them. A list stores the objects that changed as protobuf.
func TestStoredFormsMixed(t *testing.T) {
	if *storedAsJSON {
		t.Skip("the test has both forms")
	}
	path := filepath.Join(t.TempDir(), "db")
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		for _, name := range []string{"a", "b", "c", "d"} {
			s.put(name)
		}
		start := func(opts ...informer.Option) (*running, *pods, store.DB) {
			db := boltDB(t, path)
			inf := newInformer(s, append(opts, informer.WithStore(db, "pods"), informer.WithIndexVersion("node", "1"))...)
			h, _ := subscribe(t, inf)
			r := run(t, inf)
			synctest.Wait()
			return r, h, db
		}
		check := func(r *running) {
			byNodes, want := map[string][]any{}, []any{}
			for _, name := range slices.Sorted(maps.Keys(s.objects)) {
				p := s.objects[name]
				byNodes[p.Spec.NodeName] = append(byNodes[p.Spec.NodeName], p)
				want = append(want, p)
				got, exists, err := r.GetStore().GetByKey("ns/" + name)
				require.NoError(t, err)
				require.True(t, exists)
				require.Equal(t, p, got)
			}
			require.Equal(t, want, r.GetStore().List())
			require.ElementsMatch(t, slices.Collect(maps.Keys(byNodes)), r.GetIndexer().ListIndexFuncValues("node"))
			for node, want := range byNodes {
				got, err := r.GetIndexer().ByIndex("node", node)
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
			require.Zero(t, r.GetIndexer().(*informer.Indexer).ReadErrors())
		}
		finish := func(r *running, db store.DB) {
			r.stop()
			require.NoError(t, db.Close())
		}
		r, _, db := start(informer.WithCodec(informer.NewCodec(&corev1.Pod{}, core())))
		check(r)
		require.Empty(t, protobufOf(t, db, true))
		finish(r, db)
		s.counts()

		r, h, db := start()
		require.Equal(t, []string{"add a@1 true", "add b@2 true", "add c@3 true", "add d@4 true"}, h.take())
		check(r)
		s.put("b") // on another node
		s.remove("c")
		s.put("e")
		synctest.Wait()
		require.Equal(t, []string{"update b@2 b@5", "delete c@6", "add e@7 false"}, h.take())
		check(r)
		require.Equal(t, map[string]bool{"ns/b": true, "ns/e": true}, protobufOf(t, db, true))
		finish(r, db)

		r, h, db = start() // and read again from the file
		require.Equal(t, []string{"add a@1 true", "add b@5 true", "add d@4 true", "add e@7 true"}, h.take())
		check(r)
		require.Equal(t, map[string]bool{"ns/a": true, "ns/d": true}, protobufOf(t, db, false))
		require.Zero(t, s.counts(), "a mixed collection is resumed")
		finish(r, db)

		// A list that finds objects as they are stored keeps their records, in either form.
		s.elsewhere()
		s.set(func(s *server) { s.compacted = s.rv })
		r, h, db = start()
		require.Equal(t, []string{"add a@1 true", "add b@5 true", "add d@4 true", "add e@7 true"}, h.take())
		check(r)
		require.Equal(t, 1, s.counts())
		require.Equal(t, map[string]bool{"ns/a": true, "ns/d": true}, protobufOf(t, db, false))
		finish(r, db)

		// All objects changed.
		for name := range s.objects {
			s.put(name)
		}
		s.set(func(s *server) { s.compacted = s.rv })
		r, _, db = start()
		require.Equal(t, 1, s.counts())
		check(r)
		require.Empty(t, protobufOf(t, db, false))
		require.Len(t, protobufOf(t, db, true), 4)
		finish(r, db)
	})
}
