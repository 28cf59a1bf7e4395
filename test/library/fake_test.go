package library

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/test/controlplane"
)

// clientCase is a client for a factory, with the functions that change its objects.
type clientCase struct {
	name   string
	ns     string
	client any
	put    func(t *testing.T, name, value string)
	remove func(t *testing.T, name string)
	real   bool // it has an identity
}

// aConfigMap has the resourceVersion that authors of unit tests give to all their objects.
func aConfigMap(ns, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, ResourceVersion: "1"}, Data: map[string]string{"value": value},
	}
}

func typedCase(t *testing.T, name, ns string, c kubernetes.Interface) clientCase {
	_, isFake := c.(*fake.Clientset)
	return clientCase{
		name: name, ns: ns, client: c, real: !isFake,
		put: func(t *testing.T, name, value string) {
			if !isFake {
				put(t, c, ns, name, value, nil)
				return
			}
			m := aConfigMap(ns, name, value)
			_, err := c.CoreV1().ConfigMaps(ns).Update(t.Context(), m, metav1.UpdateOptions{})
			if err != nil {
				_, err = c.CoreV1().ConfigMaps(ns).Create(t.Context(), m, metav1.CreateOptions{})
			}
			require.NoError(t, err)
		},
		remove: func(t *testing.T, name string) { remove(t, c, ns, name) },
	}
}

func dynamicCase(t *testing.T, name, ns string, d dynamic.Interface) clientCase {
	r := d.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(ns)
	return clientCase{
		name: name, ns: ns, client: d,
		put: func(t *testing.T, name, value string) {
			u := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": ns, "name": name, "resourceVersion": "1"},
				"data": map[string]any{"value": value},
			}}
			_, err := r.Update(t.Context(), u, metav1.UpdateOptions{})
			if err != nil {
				_, err = r.Create(t.Context(), u, metav1.CreateOptions{})
			}
			require.NoError(t, err)
		},
		remove: func(t *testing.T, name string) {
			require.NoError(t, r.Delete(t.Context(), name, metav1.DeleteOptions{}))
		},
	}
}

// TestFactoryOfAClient runs typed, dynamic and generated informers over each form of client
// that a factory takes. Objects of the fakes never change their resourceVersion.
func TestFactoryOfAClient(t *testing.T) {
	const ns = "factory-client"
	real := clientset(t, ns)
	put(t, real, ns, "a", "1", nil)
	for _, tc := range []clientCase{
		typedCase(t, "kubernetes/fake NewClientset", "shop", fake.NewClientset(aConfigMap("shop", "a", "1"))),
		typedCase(t, "kubernetes/fake NewSimpleClientset", "shop", fake.NewSimpleClientset(aConfigMap("shop", "a", "1"))),
		dynamicCase(t, "dynamic/fake", "shop", dynamicfake.NewSimpleDynamicClient(scheme.Scheme, aConfigMap("shop", "a", "1"))),
		typedCase(t, "a real clientset", ns, real),
		{
			name: "a real dynamic client", ns: ns, client: dynamic.NewForConfigOrDie(shared.RESTConfig(controlplane.Admin)), real: true,
			put:    func(t *testing.T, name, value string) { put(t, real, ns, name, value, nil) },
			remove: func(t *testing.T, name string) { remove(t, real, ns, name) },
		},
	} {
		for _, s := range []struct {
			name string
			db   store.DB
		}{{"in memory", memory.New()}, {"on disk", openStore(t, t.TempDir())}} {
			t.Run(tc.name+", "+s.name, func(t *testing.T) {
				tc.put(t, "a", "1")
				f, err := informer.NewFactory(informer.FactoryOptions{Client: tc.client, Scheme: scheme.Scheme, Store: s.db, Namespace: tc.ns})
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer func() { cancel(); f.Shutdown(); require.NoError(t, s.db.Close()) }()
				lister := core.New(generated{Factory: f}, tc.ns, nil).V1().ConfigMaps().Lister().ConfigMaps(tc.ns)
				trees := f.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
				updates := make(chan string, 100)
				_, err = f.InformerFor(&corev1.ConfigMap{}).AddEventHandler(cache.ResourceEventHandlerFuncs{
					UpdateFunc: func(_, o any) { updates <- o.(*corev1.ConfigMap).Data["value"] },
				})
				require.NoError(t, err)
				f.StartWithContext(ctx)
				require.NoError(t, f.WaitForCacheSyncWithContext(ctx).AsError())
				awaitContent := func(want map[string]string) {
					t.Helper()
					require.Eventually(t, func() bool {
						typed, err := lister.List(labels.Everything())
						require.NoError(t, err)
						all, err := trees.Lister().ByNamespace(tc.ns).List(labels.Everything())
						require.NoError(t, err)
						if len(typed) != len(want) || len(all) != len(want) {
							return false
						}
						for _, m := range typed {
							require.Empty(t, m.Kind)
							if want[m.Name] != m.Data["value"] {
								return false
							}
						}
						for _, o := range all {
							u := o.(*unstructured.Unstructured)
							require.Equal(t, "ConfigMap", u.GetKind())
							if value, _, _ := unstructured.NestedString(u.Object, "data", "value"); want[u.GetName()] != value {
								return false
							}
						}
						return true
					}, patience, pollEvery)
				}
				awaitContent(map[string]string{"a": "1"})
				tc.put(t, "a", "2")
				awaitContent(map[string]string{"a": "2"})
				require.Equal(t, "2", <-updates)
				tc.put(t, "b", "1")
				awaitContent(map[string]string{"a": "2", "b": "1"})
				tc.remove(t, "b")
				awaitContent(map[string]string{"a": "2"})

				v, err := s.db.View("configmaps@" + tc.ns)
				require.NoError(t, err)
				defer v.Close()
				if tc.real {
					require.Contains(t, v.State().Cluster, "uid:")
				} else {
					require.Empty(t, v.State().Cluster)
				}
			})
		}
	}
}

// With a namespace kube-system a fake has an identity.
func TestIdentityOfAFake(t *testing.T) {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "1"}}
	for _, client := range []any{fake.NewClientset(system), dynamicfake.NewSimpleDynamicClient(scheme.Scheme, system)} {
		db := memory.New()
		f, err := informer.NewFactory(informer.FactoryOptions{Client: client, Scheme: scheme.Scheme, Store: db})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		inf := f.InformerFor(&corev1.Namespace{}) // a cluster-scoped resource
		f.StartWithContext(ctx)
		require.NoError(t, f.WaitForCacheSyncWithContext(ctx).AsError())
		require.Len(t, inf.GetStore().List(), 1)
		v, err := db.View("namespaces")
		require.NoError(t, err)
		require.Equal(t, "uid:1", v.State().Cluster)
		v.Close()
		cancel()
		f.Shutdown()
		require.NoError(t, db.Close())
	}
}

func TestFactoryWithoutAClient(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts informer.FactoryOptions
		want string
	}{
		{"nothing", informer.FactoryOptions{}, "there is neither a Config nor a Client"},
		{"both", informer.FactoryOptions{Config: &rest.Config{}, Client: fake.NewClientset()}, "there are both a Config and a Client"},
		{"no client", informer.FactoryOptions{Client: "client"}, "the Client is a string, which is neither"},
		{"a group's client", informer.FactoryOptions{Client: fake.NewClientset().CoreV1()}, "which is neither"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := informer.NewFactory(tc.opts)
			require.ErrorContains(t, err, tc.want)
		})
	}
	// A type that the client does not have never syncs.
	f, err := informer.NewFactory(informer.FactoryOptions{Client: fake.NewClientset()})
	require.NoError(t, err)
	require.False(t, f.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer().HasSynced())
	f.Shutdown()
}
