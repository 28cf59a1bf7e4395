package library

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// onStores runs a test on a store in memory and on a durable one.
func onStores(t *testing.T, test func(t *testing.T, kind string, db store.DB)) {
	for _, kind := range []string{"memory", "durable"} {
		t.Run(kind, func(t *testing.T) {
			var db store.DB = memory.New()
			if kind == "durable" {
				db = openStore(t, t.TempDir())
			}
			test(t, kind, db)
			require.NoError(t, db.Close())
		})
	}
}

// An informer of a manager's cache that is removed and at once made again syncs without a second
// list and has the changes. The program uses one object for each Get and GetInformer.
func TestInformerRemovedAndRecreated(t *testing.T) {
	ctrl.SetLogger(klog.Background())
	onStores(t, func(t *testing.T, kind string, db store.DB) {
		ns := "made-again-" + kind
		c, req := clientset(t, ns), &requests{}
		put(t, c, ns, "a", "0", nil)
		mgr, err := ctrl.NewManager(req.config("configmaps"), ctrl.Options{
			Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"},
			Cache: cache.Options{
				DefaultNamespaces: map[string]cache.Config{ns: {}},
				NewInformer:       informer.NewFunc(db, informer.WithScheme(scheme.Scheme)),
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- mgr.Start(ctx) }()
		stop := sync.OnceFunc(func() {
			cancel()
			require.NoError(t, <-done)
		})
		defer stop()
		tree, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
		tree.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		for _, obj := range []client.Object{&corev1.ConfigMap{}, tree, metadata} {
			for n := range 5 {
				inf, err := mgr.GetCache().GetInformer(ctx, obj)
				require.NoError(t, err)
				require.True(t, inf.HasSynced())
				put(t, c, ns, "a", strconv.Itoa(n+1), nil)
				m, err := c.CoreV1().ConfigMaps(ns).Get(ctx, "a", metav1.GetOptions{})
				require.NoError(t, err)
				require.Eventually(t, func() bool {
					err := mgr.GetCache().Get(ctx, client.ObjectKey{Namespace: ns, Name: "a"}, obj)
					return err == nil && obj.GetResourceVersion() == m.ResourceVersion
				}, patience, pollEvery)
				require.NoError(t, mgr.GetCache().RemoveInformer(ctx, obj))
			}
			require.Equal(t, 1, req.take(), "%T: lists of the five informers", obj)
		}
		stop()
	})
}

// Factories of different selectors have a cache each. Of two with the same selectors the second
// waits, with a warning, until the first has stopped.
func TestTwoFactoriesOnOneStore(t *testing.T) {
	onStores(t, func(t *testing.T, kind string, db store.DB) {
		ns := "two-factories-" + kind
		c, req := clientset(t, ns), &requests{}
		for n := range 10 {
			labels := map[string]string{}
			if n%2 == 0 {
				labels["half"] = "yes"
			}
			put(t, c, ns, "m"+strconv.Itoa(n), "1", labels)
		}
		warnings := make(chan string, 100)
		start := func(selector string) (inf toolscache.SharedIndexInformer, stop func()) {
			f, err := informer.NewFactory(informer.FactoryOptions{
				Config: req.config("configmaps"), Scheme: scheme.Scheme, Store: db, Namespace: ns,
				TweakListOptions: func(o *metav1.ListOptions) { o.LabelSelector = selector },
				Informers:        []informer.Option{informer.WithLogger(slog.New(warner{warnings}))},
			})
			require.NoError(t, err)
			inf = f.InformerFor(&corev1.ConfigMap{})
			ctx, cancel := context.WithCancel(t.Context())
			f.StartWithContext(ctx)
			return inf, sync.OnceFunc(func() {
				cancel()
				f.Shutdown()
			})
		}
		has := func(inf toolscache.SharedIndexInformer, selected int) {
			t.Helper()
			require.Eventually(t, func() bool {
				ours := 0
				for _, o := range inf.GetStore().List() {
					if o.(*corev1.ConfigMap).Data["value"] == "1" {
						ours++
					}
				}
				return inf.HasSynced() && ours == selected
			}, patience, pollEvery)
		}
		const of = "half!=no,!kubernetes.io/metadata.name"
		all, stopAll := start(of)
		defer stopAll()
		has(all, 10)
		half, stopHalf := start("half=yes")
		defer stopHalf()
		has(half, 5)
		has(all, 10)
		require.Empty(t, warnings)

		second, stopSecond := start(of)
		defer stopSecond()
		require.Contains(t, <-warnings, "configmaps@"+ns+" [labels "+of+"]")
		require.False(t, second.HasSynced())
		_, _, err := second.GetStore().GetByKey(ns + "/m0")
		require.ErrorIs(t, err, store.ErrInUse)
		put(t, c, ns, "m10", "1", nil)
		has(all, 11)
		require.Equal(t, 2, req.take())
		stopAll()
		has(second, 11)
		require.Zero(t, req.take(), "the second resumes where the first ended")
		put(t, c, ns, "m11", "1", nil)
		has(second, 12)
		has(half, 5)
		stopSecond()
		stopHalf()
	})
}

// warner sends the lines that are logged as a warning or an error.
type warner struct{ lines chan<- string }

func (warner) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w warner) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	w.lines <- line
	return nil
}

func (w warner) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w warner) WithGroup(string) slog.Handler      { return w }
