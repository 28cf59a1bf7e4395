package library

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/snapcache/snapcache/informer/durable"
)

// manageDurable runs a manager on the durable cache in dir until stop is called.
func manageDurable(t *testing.T, ns, dir string, cfg *rest.Config) (r *reconciler, stop func()) {
	t.Helper()
	cached, err := durable.Open(t.Context(), durable.Options{Dir: dir, Config: cfg, Scheme: scheme.Scheme, Metrics: metrics.Registry})
	require.NoError(t, err)
	return runManager(t, cfg, ctrl.Options{Cache: cache.Options{
		DefaultNamespaces: map[string]cache.Config{ns: {}}, NewInformer: cached.NewInformer,
	}}, cached.Run)
}

// durableStores returns the values of the metric of durable caches, by their paths, and the reasons.
func durableStores(t *testing.T) (values map[string]float64, reasons map[string]string) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	values, reasons = map[string]float64{}, map[string]string{}
	for _, f := range families {
		if f.GetName() != "snapcache_store_durable" {
			continue
		}
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			values[labels["path"]], reasons[labels["path"]] = m.Gauge.GetValue(), labels["reason"]
		}
	}
	return values, reasons
}

// TestManagerStore: a manager on a durable cache makes no list when it is started again, and has the
// changes since.
func TestManagerStore(t *testing.T) {
	const ns = "manager-store"
	c, dir, req := clientset(t, ns), filepath.Join(t.TempDir(), "cache"), &requests{}
	put(t, c, ns, "a", "1", nil)
	put(t, c, ns, "b", "1", nil)
	cfg := req.config("configmaps")
	r, stop := manageDurable(t, ns, dir, cfg)
	awaitFound(t, r, map[string]string{"a": "1", "b": "1"})
	require.Equal(t, 1, req.take())
	values, _ := durableStores(t)
	require.Equal(t, map[string]float64{filepath.Join(dir, durable.FileName): 1}, values)
	stop()

	put(t, c, ns, "a", "2", nil)
	r, stop = manageDurable(t, ns, dir, cfg)
	awaitFound(t, r, map[string]string{"a": "2", "b": "1"})
	put(t, c, ns, "b", "2", nil)
	awaitFound(t, r, map[string]string{"a": "2", "b": "2"})
	require.Zero(t, req.take(), "lists after the restart")
	stop()
	values, _ = durableStores(t)
	require.Empty(t, values)
}

// TestManagerStore_ReadOnly: with a directory that takes no files a manager starts, and starts again, as
// without the cache.
func TestManagerStore_ReadOnly(t *testing.T) {
	const ns = "manager-read-only"
	c, dir := clientset(t, ns), t.TempDir()
	reason := "not-a-directory"
	if os.Geteuid() == 0 {
		require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_RDONLY, ""))
		defer func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) }()
		reason = "read-only"
	} else {
		dir = filepath.Join(dir, "file", "cache")
		require.NoError(t, os.WriteFile(filepath.Dir(dir), nil, 0o600))
	}
	put(t, c, ns, "a", "1", nil)
	for range 2 {
		r, stop := manageDurable(t, ns, dir, (&requests{}).config("configmaps"))
		awaitFound(t, r, map[string]string{"a": "1"})
		put(t, c, ns, "b", "2", nil)
		awaitFound(t, r, map[string]string{"b": "2"})
		remove(t, c, ns, "b")
		awaitFound(t, r, map[string]string{"b": "gone"})
		_, reasons := durableStores(t)
		require.Equal(t, reason, reasons[filepath.Join(dir, durable.FileName)])
		stop()
	}
}
