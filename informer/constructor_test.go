package informer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store/memory"
)

// listerWatcher lists pods of a server that does not answer.
func listerWatcher(t *testing.T, host string) cache.ListerWatcher {
	config := &rest.Config{Host: host, APIPath: "/api", ContentConfig: rest.ContentConfig{
		GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}}
	c, err := rest.RESTClientFor(config)
	require.NoError(t, err)
	return cache.NewListWatchFromClient(c, "pods", "shop", fields.Everything())
}

// TestConstructor_LeftToClientGo: the constructor returns nil for an informer that can't be durable.
func TestConstructor_LeftToClientGo(t *testing.T) {
	construct := informer.NewConstructor(memory.New(), "http://127.0.0.1:1", informer.WithScheme(scheme.Scheme))
	var none cache.SharedIndexInformerOptions
	own := listerWatcher(t, "http://127.0.0.1:1")
	require.NotNil(t, construct(own, &corev1.Pod{}, none))
	require.Nil(t, construct(listerWatcher(t, "http://127.0.0.1:2"), &corev1.Pod{}, none), "another server")
	require.Nil(t, construct(own, nil, none), "no type")
	require.Nil(t, construct(&cache.ListWatch{
		ListFunc: func(metav1.ListOptions) (runtime.Object, error) { return &corev1.PodList{}, nil }, //nolint:staticcheck // what old clients set
	}, &corev1.Pod{}, none), "no address")
}

// TestConstructor_SameObjects: informers of the same objects have collections of their own, and one that has stopped
// leaves its collection to the next.
func TestConstructor_SameObjects(t *testing.T) {
	db := memory.New()
	construct := informer.NewConstructor(db, "http://127.0.0.1:1", informer.WithScheme(scheme.Scheme))
	stopped := make(chan struct{})
	close(stopped)
	ids := func() (ids []string) {
		t.Helper()
		infos, err := db.Collections()
		require.NoError(t, err)
		for _, i := range infos {
			ids = append(ids, i.ID)
		}
		return ids
	}
	make := func() cache.SharedIndexInformer {
		return construct(listerWatcher(t, "http://127.0.0.1:1"), &corev1.Pod{}, cache.SharedIndexInformerOptions{})
	}
	first, second := make(), make()
	second.Run(stopped)
	require.ElementsMatch(t, []string{"pods@shop #2"}, ids())
	make().Run(stopped)
	require.ElementsMatch(t, []string{"pods@shop #2"}, ids(), "the id is free again")
	first.Run(stopped)
	require.ElementsMatch(t, []string{"pods@shop #2", "pods@shop"}, ids())
}
