package library

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// run runs an informer until the end of the test, and then closes its store.
func run(t *testing.T, inf cache.SharedIndexInformer, db store.DB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		inf.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		require.NoError(t, db.Close())
	})
}

// atRest is the apiserver's configuration of encryption; the first provider writes.
func atRest(providers string) []byte {
	return []byte(`{"kind":"EncryptionConfiguration","apiVersion":"apiserver.config.k8s.io/v1",
		"resources":[{"resources":["configmaps"],"providers":[` + providers + `]}]}`)
}

// TestUnreadableObjectDeleted takes the apiserver the key of one object and deletes that
// object, which ends every watch from before with a store read error.
func TestUnreadableObjectDeleted(t *testing.T) {
	const (
		ns    = "default"
		plain = `{"identity":{}}`
		key   = `{"aescbc":{"keys":[{"name":"k","secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}]}}`
	)
	config := filepath.Join(t.TempDir(), "encryption.json")
	require.NoError(t, os.WriteFile(config, atRest(plain+","+key), 0o600))
	cp := harness.ControlPlane(t, controlplane.Options{APIServerArgs: []string{
		"--encryption-provider-config=" + config, "--feature-gates=AllowUnsafeMalformedObjectDeletion=true",
		// A server's cache can't start beside an object that it can't read.
		"--watch-cache=false",
	}})
	restart := func(providers string) {
		require.NoError(t, os.WriteFile(config, atRest(providers), 0o600))
		require.NoError(t, cp.KillAPIServer(t.Context()))
		require.NoError(t, cp.StartAPIServer(t.Context()))
	}
	c := harness.Clientset(t, cp.RESTConfig(controlplane.Admin))
	put(t, c, ns, "a", "1", nil)
	restart(key + "," + plain)
	put(t, c, ns, "unreadable", "1", nil)

	stores := map[string]store.DB{"in memory": memory.New(), "on disk": openStore(t, t.TempDir())}
	informers := map[string]cache.SharedIndexInformer{}
	deleted := map[string]chan any{}
	for name, db := range stores {
		lw := cache.NewFilteredListWatchFromClient(c.CoreV1().RESTClient(), "configmaps", ns, func(*metav1.ListOptions) {})
		inf := informer.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{},
			informer.WithStore(db, "configmaps"), informer.WithScheme(scheme.Scheme))
		gone := make(chan any, 10)
		_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) { gone <- o }})
		require.NoError(t, err)
		informers[name], deleted[name] = inf, gone
		run(t, inf, db)
		require.Eventually(t, func() bool { return inf.HasSynced() && len(inf.GetStore().ListKeys()) == 2 }, patience, pollEvery)
	}

	restart(plain)
	_, err := c.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsStoreReadError(err), "%v", err)
	yes := true
	require.NoError(t, c.CoreV1().ConfigMaps(ns).Delete(t.Context(), "unreadable",
		metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: &yes}))
	put(t, c, ns, "a", "2", nil)
	for name, inf := range informers {
		require.Eventually(t, func() bool {
			list := inf.GetStore().List()
			return len(list) == 1 && list[0].(*corev1.ConfigMap).Data["value"] == "2"
		}, patience, pollEvery, name)
		gone, ok := (<-deleted[name]).(cache.DeletedFinalStateUnknown)
		require.True(t, ok, name)
		require.Equal(t, ns+"/unreadable", gone.Key, name)
		v, err := stores[name].View("configmaps")
		require.NoError(t, err)
		require.Equal(t, store.ReasonStoreReadError, v.State().ListReason, name)
		v.Close()
	}
}
