package library

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
)

// generated is a factory that client-go's generated code can use.
type generated = informer.Generated[internalinterfaces.NewInformerFunc]

var _ internalinterfaces.SharedInformerFactory = generated{}

func newFactory(t *testing.T, cfg *rest.Config, db store.DB, ns string) *informer.Factory {
	t.Helper()
	f, err := informer.NewFactory(informer.FactoryOptions{
		Config: cfg, Scheme: scheme.Scheme, Store: db, Namespace: ns,
		TweakListOptions: func(o *metav1.ListOptions) { o.LabelSelector = "keep=yes" },
		Transform: func(o any) (any, error) {
			m, err := meta(o)
			if err == nil {
				m.SetManagedFields(nil)
			}
			return o, err
		},
		TransformName: "drop managedFields",
	})
	require.NoError(t, err)
	return f
}

func meta(o any) (metav1.Object, error) {
	a, ok := o.(metav1.ObjectMetaAccessor)
	if !ok {
		return o.(*unstructured.Unstructured), nil
	}
	return a.GetObjectMeta(), nil
}

// client-go's generated informers and listers work on the factory; so do listers of any resource.
// A factory that is started again makes no list, and it starts without a server.
func TestFactory(t *testing.T) {
	const ns = "factory"
	c, dir, req := clientset(t, ns), t.TempDir(), &requests{}
	keep := map[string]string{"keep": "yes"}
	put(t, c, ns, "a", "1", keep)
	put(t, c, ns, "b", "1", keep)
	put(t, c, ns, "other", "1", nil)
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")

	names := func(f *informer.Factory) (typed, dynamic []string) {
		lister := core.New(generated{Factory: f}, ns, nil).V1().ConfigMaps().Lister()
		list, err := lister.ConfigMaps(ns).List(labels.Everything())
		require.NoError(t, err)
		for _, m := range list {
			require.Empty(t, m.ManagedFields)
			typed = append(typed, m.Name+"="+m.Data["value"])
		}
		objects, err := f.ForResource(gvr).Lister().ByNamespace(ns).List(labels.Everything())
		require.NoError(t, err)
		for _, o := range objects {
			dynamic = append(dynamic, o.(*unstructured.Unstructured).GetName())
		}
		return typed, dynamic
	}
	start := func(cfg *rest.Config) (f *informer.Factory, stop func()) {
		db := openStore(t, dir)
		f = newFactory(t, cfg, db, ns)
		inf := core.New(generated{Factory: f}, ns, nil).V1().ConfigMaps().Informer()
		require.Same(t, inf.GetIndexer(), f.InformerFor(&corev1.ConfigMap{}).GetIndexer())
		require.Same(t, f.ForResource(gvr).Informer(), f.ForResource(gvr).Informer())
		ctx, cancel := context.WithCancel(context.Background())
		f.StartWithContext(ctx)
		f.StartWithContext(ctx) // running informers are not started again
		res := f.WaitForCacheSyncWithContext(ctx)
		require.NoError(t, res.AsError())
		require.Equal(t, map[reflect.Type]bool{
			reflect.TypeFor[*corev1.ConfigMap](): true, reflect.TypeFor[*unstructured.Unstructured](): true,
		}, res.Synced)
		return f, func() {
			cancel()
			f.Shutdown()
			require.NoError(t, db.Close())
		}
	}
	f, stop := start(req.config("configmaps"))
	typed, dynamic := names(f)
	require.ElementsMatch(t, []string{"a=1", "b=1"}, typed)
	require.ElementsMatch(t, []string{"a", "b"}, dynamic)
	require.Equal(t, 2, req.take(), "one list for each informer")
	stop()

	put(t, c, ns, "a", "2", keep)
	remove(t, c, ns, "b")
	put(t, c, ns, "c", "1", keep)
	f, stop = start(req.config("configmaps"))
	require.Eventually(t, func() bool {
		typed, dynamic := names(f)
		return reflect.DeepEqual(typed, []string{"a=2", "c=1"}) && reflect.DeepEqual(dynamic, []string{"a", "c"})
	}, patience, pollEvery)
	require.Zero(t, req.take())
	stop()

	// No server listens on that port.
	f, stop = start(&rest.Config{Host: "https://127.0.0.1:1"})
	typed, _ = names(f)
	require.ElementsMatch(t, []string{"a=2", "c=1"}, typed)
	stop()
}

// A type that can't be listed never syncs, and the factory's result has that type.
func TestFactoryTypeUnknown(t *testing.T) {
	f, err := informer.NewFactory(informer.FactoryOptions{Config: &rest.Config{Host: "https://127.0.0.1:1"}, Scheme: scheme.Scheme})
	require.NoError(t, err)
	require.False(t, f.InformerFor(&metav1.PartialObjectMetadata{}).HasSynced())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	f.StartWithContext(ctx)
	require.ErrorContains(t, f.WaitForCacheSyncWithContext(ctx).AsError(), "PartialObjectMetadata")
	f.Shutdown()
	f.StartWithContext(t.Context())
	_, err = informer.NewFactory(informer.FactoryOptions{})
	require.ErrorContains(t, err, "there is neither a Config nor a Client")
}
