package library

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// TestWatchList makes the first list of a factory's informers by a watch, which then continues as
// the watch: the server gets no list request.
func TestWatchList(t *testing.T) {
	for _, tc := range []struct {
		name string
		ns   string
		db   store.DB
	}{
		{"in memory", "watch-list-memory", memory.New()},
		{"on disk", "watch-list-disk", openStore(t, t.TempDir())},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, req := clientset(t, tc.ns), &requests{}
			put(t, c, tc.ns, "a", "1", nil)
			put(t, c, tc.ns, "b", "1", nil)
			f, err := informer.NewFactory(informer.FactoryOptions{
				Config: req.config("configmaps"), Scheme: scheme.Scheme, Store: tc.db, Namespace: tc.ns,
				Informers: []informer.Option{informer.WithWatchList()},
			})
			require.NoError(t, err)
			informers := []string{"typed", "dynamic"}
			typed, dynamic := f.InformerFor(&corev1.ConfigMap{}), f.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer()
			ctx, cancel := context.WithCancel(t.Context())
			defer func() { cancel(); f.Shutdown(); require.NoError(t, tc.db.Close()) }()
			f.StartWithContext(ctx)
			require.NoError(t, f.WaitForCacheSyncWithContext(ctx).AsError())
			require.ElementsMatch(t, []string{tc.ns + "/a", tc.ns + "/b"}, typed.GetStore().ListKeys())
			require.ElementsMatch(t, []string{tc.ns + "/a", tc.ns + "/b"}, dynamic.GetStore().ListKeys())

			remove(t, c, tc.ns, "a")
			put(t, c, tc.ns, "c", "1", nil)
			for i, cached := range []interface{ ListKeys() []string }{typed.GetStore(), dynamic.GetStore()} {
				require.Eventually(t, func() bool {
					keys := map[string]bool{}
					for _, key := range cached.ListKeys() {
						keys[key] = true
					}
					return len(keys) == 2 && keys[tc.ns+"/b"] && keys[tc.ns+"/c"]
				}, patience, pollEvery, informers[i])
			}
			require.Zero(t, req.take(), "list requests")
		})
	}
}
