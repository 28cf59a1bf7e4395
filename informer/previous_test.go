package informer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
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
				require.Zero(t, s.counts(), "it resumed")
				r.stop()
				require.NoError(t, db.Close())
			})
		})
	}
}
