package kubeapi

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// indexedNode is the value of the field index of Pods that is read.
const indexedNode = "edge-1"

// startManager starts a manager of controller-runtime, with caches of each of its forms and a field
// index, and waits until they are synced.
func startManager(t *testing.T, config *rest.Config) []view {
	t.Helper()
	ctrl.SetLogger(klog.Background())
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"},
		Cache:  cache.Options{DefaultTransform: withoutKind},
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	require.NoError(t, err)
	require.NoError(t, mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	}))
	unstructuredList, metadataList := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
	unstructuredList.SetGroupVersionKind(schema.GroupVersionKind{Group: widgets.Group, Version: widgets.Version, Kind: "WidgetList"})
	metadataList.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"})
	views := []view{
		{name: "typed cache", of: pods, form: typed, read: cachedList(mgr, &corev1.PodList{})},
		{name: "typed cache", of: nodes, form: typed, read: cachedList(mgr, &corev1.NodeList{})},
		{name: "typed cache", of: deployments, form: typed, read: cachedList(mgr, &appsv1.DeploymentList{})},
		{name: "unstructured cache", of: widgets, form: asItIs, read: cachedList(mgr, unstructuredList)},
		{name: "metadata cache", of: configMaps, form: onlyMetadata, read: cachedList(mgr, metadataList)},
		{name: "field index", of: pods, form: typed, read: cachedList(mgr, &corev1.PodList{}, client.MatchingFields{"spec.nodeName": indexedNode}),
			wanted: func(o *unstructured.Unstructured) bool {
				node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
				return node == indexedNode
			}},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	synced, stop := context.WithTimeout(ctx, patience)
	defer stop()
	require.True(t, mgr.GetCache().WaitForCacheSync(synced), "the cache has not started")
	for _, v := range views { // the first read starts an informer
		_, err := v.read(synced)
		require.NoError(t, err)
	}
	return views
}

// cachedList reads a list from the manager's caches.
func cachedList(mgr ctrl.Manager, empty client.ObjectList, options ...client.ListOption) func(context.Context) ([]runtime.Object, error) {
	return func(ctx context.Context) ([]runtime.Object, error) {
		list := empty.DeepCopyObject().(client.ObjectList)
		if err := mgr.GetClient().List(ctx, list, options...); err != nil {
			return nil, err
		}
		return meta.ExtractList(list)
	}
}
