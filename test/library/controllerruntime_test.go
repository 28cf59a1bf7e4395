package library

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
)

// reconciler writes down what it finds.
type reconciler struct {
	client client.Client

	mu    sync.Mutex
	found map[string]string // value by name; "gone" where there is none
}

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	value := "gone"
	var m corev1.ConfigMap
	err := r.client.Get(ctx, req.NamespacedName, &m)
	if err == nil {
		value = m.Data["value"]
	} else if !apierrors.IsNotFound(err) {
		return ctrl.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[req.Name] = value
	return ctrl.Result{}, nil
}

func (r *reconciler) snapshot() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string]string{}
	for name, value := range r.found {
		found[name] = value
	}
	return found
}

// manage runs a real manager with a reconciler of ConfigMaps on a durable cache
// until stop is called.
func manage(t *testing.T, ns, dir string, req *requests) (r *reconciler, stop func()) {
	t.Helper()
	ctrl.SetLogger(klog.Background())
	db := openStore(t, dir)
	unique := true
	mgr, err := ctrl.NewManager(req.config("configmaps"), ctrl.Options{
		Scheme:     scheme.Scheme,
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &unique},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{ns: {}},
			NewInformer:       informer.NewFunc(db, informer.WithScheme(scheme.Scheme), informer.WithScope(store.Scope{Namespace: ns})),
		},
	})
	require.NoError(t, err)
	r = &reconciler{client: mgr.GetClient(), found: map[string]string{}}
	require.NoError(t, mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "value", func(o client.Object) []string {
		return []string{o.(*corev1.ConfigMap).Data["value"]}
	}))
	require.NoError(t, ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(r))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, db.Close())
	})
	t.Cleanup(stop)
	return r, stop
}

// A manager that is stopped and started again resumes: it makes no list, its cache
// and its field index are there, and the reconciler is called for what changed
// meanwhile. Of what was deleted meanwhile it does not hear, as with
// controller-runtime's own cache: the manager adds its handlers when the cache has
// synced already.
func TestControllerRuntime(t *testing.T) {
	const ns = "controller-runtime"
	c, dir, req := clientset(t, ns), t.TempDir(), &requests{}
	put(t, c, ns, "a", "1", nil)
	put(t, c, ns, "b", "1", nil)
	put(t, c, ns, "c", "1", nil)

	r, stop := manage(t, ns, dir, req)
	want := map[string]string{"a": "1", "b": "1", "c": "1"}
	awaitFound(t, r, want)
	put(t, c, ns, "a", "2", nil)
	require.Eventually(t, func() bool { return r.snapshot()["a"] == "2" }, patience, pollEvery)
	require.Equal(t, 1, req.take())
	stop()

	put(t, c, ns, "b", "2", nil)
	remove(t, c, ns, "c")
	put(t, c, ns, "d", "1", nil)
	r, stop = manage(t, ns, dir, req)
	want = map[string]string{"a": "2", "b": "2", "d": "1"}
	awaitFound(t, r, want)
	require.Zero(t, req.take(), "lists after the restart")
	var list corev1.ConfigMapList
	require.NoError(t, r.client.List(t.Context(), &list, client.InNamespace(ns), client.MatchingFields{"value": "2"}))
	var names []string
	for _, m := range list.Items {
		names = append(names, m.Name)
	}
	require.ElementsMatch(t, []string{"a", "b"}, names)
	var gone corev1.ConfigMap
	require.True(t, apierrors.IsNotFound(r.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "c"}, &gone)))
	remove(t, c, ns, "a")
	awaitFound(t, r, map[string]string{"a": "gone"})
	stop()
}

// awaitFound waits until the reconciler has found all of want. The API server puts
// ConfigMaps of its own into each namespace.
func awaitFound(t *testing.T, r *reconciler, want map[string]string) {
	t.Helper()
	if !assert.Eventually(t, func() bool {
		found := r.snapshot()
		for name, value := range want {
			if found[name] != value {
				return false
			}
		}
		return true
	}, patience, pollEvery) {
		require.Subset(t, r.snapshot(), want)
	}
}

// A cache of several namespaces can't be durable, and says so instead of mixing
// them up.
func TestSeveralNamespaces(t *testing.T) {
	db := openStore(t, t.TempDir())
	defer func() { require.NoError(t, db.Close()) }()
	c, err := cache.New((&requests{}).config("configmaps"), cache.Options{
		Scheme:            scheme.Scheme,
		DefaultNamespaces: map[string]cache.Config{"default": {}, "kube-system": {}},
		NewInformer:       informer.NewFunc(db, informer.WithScheme(scheme.Scheme)),
	})
	require.NoError(t, err)
	inf, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	require.Never(t, inf.HasSynced, 100*pollEvery, pollEvery)
	cancel()
	require.NoError(t, <-done)
}
