package library

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
)

// reconciler records the objects that it finds.
type reconciler struct {
	client client.Client

	mu    sync.Mutex
	found map[string]string // value by name; "gone" if there is no object
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
func manage(t *testing.T, namespaces map[string]cache.Config, dir string, req *requests) (r *reconciler, stop func()) {
	t.Helper()
	return manageWith(t, namespaces, dir, req.config("configmaps"), nil)
}

// manageWith is manage with a connection, and with the mapper of kinds in place of the default.
func manageWith(
	t *testing.T, namespaces map[string]cache.Config, dir string, cfg *rest.Config, mapper func(*rest.Config, *http.Client) (apimeta.RESTMapper, error),
) (r *reconciler, stop func()) {
	t.Helper()
	db := openStore(t, dir)
	return runManager(t, cfg, ctrl.Options{
		MapperProvider: mapper,
		Cache: cache.Options{
			DefaultNamespaces: namespaces,
			NewInformer:       informer.NewFunc(db, informer.WithScheme(scheme.Scheme)),
		},
	}, func(ctx context.Context, start func(context.Context) error) error {
		return errors.Join(start(ctx), db.Close())
	})
}

// runManager has run run a real manager, with a reconciler of ConfigMaps, until stop is called.
func runManager(
	t *testing.T, cfg *rest.Config, opts ctrl.Options, run func(context.Context, func(context.Context) error) error,
) (r *reconciler, stop func()) {
	t.Helper()
	ctrl.SetLogger(klog.Background())
	unique := true
	opts.Scheme, opts.Metrics.BindAddress, opts.Controller.SkipNameValidation = scheme.Scheme, "0", &unique
	mgr, err := ctrl.NewManager(cfg, opts)
	require.NoError(t, err)
	r = &reconciler{client: mgr.GetClient(), found: map[string]string{}}
	require.NoError(t, mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "value", func(o client.Object) []string {
		return []string{o.(*corev1.ConfigMap).Data["value"]}
	}))
	require.NoError(t, ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(r))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, mgr.Start) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return r, stop
}

// A manager that is stopped and started again resumes: it makes no list, its cache and its field
// index are complete, and the reconciler is called for the objects that changed meanwhile. It is
// not called for those that were deleted meanwhile, as with controller-runtime's own cache: the
// manager adds its handlers after the cache has synced.
func TestControllerRuntime(t *testing.T) {
	const ns = "controller-runtime"
	c, dir, req := clientset(t, ns), t.TempDir(), &requests{}
	put(t, c, ns, "a", "1", nil)
	put(t, c, ns, "b", "1", nil)
	put(t, c, ns, "c", "1", nil)

	r, stop := manage(t, map[string]cache.Config{ns: {}}, dir, req)
	want := map[string]string{"a": "1", "b": "1", "c": "1"}
	awaitFound(t, r, want)
	put(t, c, ns, "a", "2", nil)
	require.Eventually(t, func() bool { return r.snapshot()["a"] == "2" }, patience, pollEvery)
	require.Equal(t, 1, req.take())
	stop()

	put(t, c, ns, "b", "2", nil)
	remove(t, c, ns, "c")
	put(t, c, ns, "d", "1", nil)
	r, stop = manage(t, map[string]cache.Config{ns: {}}, dir, req)
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

// A manager with a mapper of its kinds starts without the server, on what its store has.
func TestManagerStartsOffline(t *testing.T) {
	const ns = "manager-offline"
	c, dir, p := clientset(t, ns), t.TempDir(), newProxy(t, "configmaps")
	put(t, c, ns, "a", "1", nil)
	put(t, c, ns, "b", "1", nil)
	namespaces := map[string]cache.Config{ns: {}}
	kinds := func(*rest.Config, *http.Client) (apimeta.RESTMapper, error) {
		mapper := apimeta.NewDefaultRESTMapper(nil)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), apimeta.RESTScopeNamespace)
		return mapper, nil
	}
	r, stop := manageWith(t, namespaces, dir, p.config(), kinds)
	awaitFound(t, r, map[string]string{"a": "1", "b": "1"})
	stop()

	p.down()
	put(t, c, ns, "a", "2", nil)
	r, stop = manageWith(t, namespaces, dir, p.config(), kinds)
	awaitFound(t, r, map[string]string{"a": "1", "b": "1"})
	p.up()
	awaitFound(t, r, map[string]string{"a": "2", "b": "1"})
	stop()
}

// awaitFound waits until the reconciler has found all of want. The API server adds ConfigMaps of
// its own to each namespace.
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

// A cache of several namespaces has a collection for each. Each resumes; only the one whose
// selector has changed is listed again.
func TestSeveralNamespaces(t *testing.T) {
	const one, two, other = "several-one", "several-two", "several-other"
	c, dir, req := clientset(t, one), t.TempDir(), &requests{}
	clientset(t, two)
	clientset(t, other)
	keep := map[string]string{"keep": "yes"}
	put(t, c, one, "a", "1", nil)
	put(t, c, two, "b", "1", keep)
	put(t, c, two, "left-out", "1", nil)
	put(t, c, other, "elsewhere", "1", nil)
	namespaces := map[string]cache.Config{one: {}, two: {LabelSelector: labels.SelectorFromSet(keep)}}

	r, stop := manage(t, namespaces, dir, req)
	awaitFound(t, r, map[string]string{"a": "1", "b": "1"})
	require.Equal(t, 2, req.take(), "one list for each namespace")
	stop()
	require.NotContains(t, r.snapshot(), "left-out")
	require.NotContains(t, r.snapshot(), "elsewhere")
	db := openStore(t, dir)
	infos, err := db.Collections()
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Len(t, infos, 2)
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	require.Equal(t, store.Scope{GVR: configMaps, Kind: "ConfigMap", Namespaced: true, Namespace: one}, infos[0].Scope())
	require.Equal(t, store.Scope{GVR: configMaps, Kind: "ConfigMap", Namespaced: true, Namespace: two, LabelSelector: "keep=yes"}, infos[1].Scope())
	require.Equal(t, "configmaps@"+two+" [labels keep=yes]", infos[1].ID)

	put(t, c, one, "a", "2", nil)
	put(t, c, two, "b", "2", keep)
	r, stop = manage(t, namespaces, dir, req)
	awaitFound(t, r, map[string]string{"a": "2", "b": "2"})
	require.Zero(t, req.take(), "lists after the restart")
	stop()

	namespaces[two] = cache.Config{}
	r, stop = manage(t, namespaces, dir, req)
	awaitFound(t, r, map[string]string{"a": "2", "b": "2", "left-out": "1"})
	require.Equal(t, 1, req.take(), "of the namespace with another selector")
	stop()
}

// Trees, metadata and Go types of one kind are three collections, with the selectors that the cache
// has for the kind.
func TestByObject(t *testing.T) {
	const ns = "by-object"
	c, dir, req := clientset(t, ns), t.TempDir(), &requests{}
	put(t, c, ns, "a", "1", nil)
	put(t, c, ns, "b", "1", nil)
	tree, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	tree.SetGroupVersionKind(kind)
	metadata.SetGroupVersionKind(kind)
	for _, lists := range []int{3, 0} {
		db := openStore(t, dir)
		ca, err := cache.New(req.config("configmaps"), cache.Options{
			Scheme: scheme.Scheme,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{ns: {FieldSelector: fields.OneTermEqualSelector("metadata.name", "a")}}},
			},
			NewInformer: informer.NewFunc(db, informer.WithScheme(scheme.Scheme)),
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ca.Start(ctx) }()
		require.True(t, ca.WaitForCacheSync(ctx))
		for _, obj := range []client.Object{&corev1.ConfigMap{}, tree, metadata} {
			inf, err := ca.GetInformer(t.Context(), obj)
			require.NoError(t, err)
			require.True(t, inf.HasSynced())
			var list client.ObjectList = &corev1.ConfigMapList{}
			switch obj.(type) {
			case *unstructured.Unstructured:
				l := &unstructured.UnstructuredList{}
				l.SetGroupVersionKind(kind)
				list = l
			case *metav1.PartialObjectMetadata:
				l := &metav1.PartialObjectMetadataList{}
				l.SetGroupVersionKind(kind)
				list = l
			}
			require.NoError(t, ca.List(t.Context(), list))
			require.Equal(t, 1, apimeta.LenList(list), "%T", obj)
		}
		require.Equal(t, lists, req.take())
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, db.Close())
	}
}
