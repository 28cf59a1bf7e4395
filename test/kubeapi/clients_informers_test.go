package kubeapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// startInformers starts informers of the three clients of client-go, and waits until they are synced.
func startInformers(t *testing.T, config *rest.Config) []view {
	t.Helper()
	client := harness.Clientset(t, config)
	dynamicClient := harness.Dynamic(t, config)
	metadataClient, err := metadata.NewForConfig(config)
	require.NoError(t, err)

	forTyped := informers.NewSharedInformerFactory(client, 0)
	forDynamic := dynamicinformer.NewDynamicSharedInformerFactory(dynamicClient, 0)
	forMetadata := metadatainformer.NewSharedInformerFactory(metadataClient, 0)
	var views []view
	add := func(name string, of schema.GroupVersionResource, form form, informer cache.SharedIndexInformer) {
		views = append(views, view{name: name, of: of, form: form, read: func(context.Context) ([]runtime.Object, error) {
			if !informer.HasSynced() {
				return nil, fmt.Errorf("the informer has not synced")
			}
			var all []runtime.Object
			for _, o := range informer.GetStore().List() {
				all = append(all, o.(runtime.Object))
			}
			return all, nil
		}})
	}
	for _, of := range []schema.GroupVersionResource{configMaps, pods, nodes, deployments, widgets} {
		if of != widgets {
			informer, err := forTyped.ForResource(of)
			require.NoError(t, err)
			add("typed informer", of, typed, informer.Informer())
		}
		add("dynamic informer", of, asItIs, forDynamic.ForResource(of).Informer())
		ofMetadata := forMetadata.ForResource(of).Informer()
		require.NoError(t, ofMetadata.SetTransform(withoutKind))
		add("metadata informer", of, onlyMetadata, ofMetadata)
	}
	ctx, cancel := context.WithCancel(context.Background())
	forTyped.Start(ctx.Done())
	forDynamic.Start(ctx.Done())
	forMetadata.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		forTyped.Shutdown()
		forDynamic.Shutdown()
		forMetadata.Shutdown()
	})
	synced, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for _, all := range []interface {
		WaitForCacheSync(stopCh <-chan struct{}) map[schema.GroupVersionResource]bool
	}{forDynamic, forMetadata} {
		for of, ok := range all.WaitForCacheSync(synced.Done()) {
			require.True(t, ok, "%s is not synced", of.Resource)
		}
	}
	for of, ok := range forTyped.WaitForCacheSync(synced.Done()) {
		require.True(t, ok, "%s is not synced", of)
	}
	return views
}

// withoutKind removes the kind of an object's metadata. In JSON, client-go decodes it from the items of a
// list and drops it from those of a watch, so that its detector of inconsistencies ends the process,
// with a kube-apiserver too.
func withoutKind(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		m.TypeMeta = metav1.TypeMeta{}
	}
	return o, nil
}

// startRetryWatchers starts watches that continue where they ended, from a list.
func startRetryWatchers(t *testing.T, config *rest.Config) []view {
	t.Helper()
	client := harness.Dynamic(t, config)
	var views []view
	for _, of := range []schema.GroupVersionResource{configMaps, widgets} {
		list, err := client.Resource(of).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		w := &watched{objects: map[string]runtime.Object{}, rv: list.GetResourceVersion()}
		for i := range list.Items {
			w.objects[list.Items[i].GetNamespace()+"/"+list.Items[i].GetName()] = &list.Items[i]
		}
		lw := cache.ToWatcherWithContext(&cache.ListWatch{WatchFunc: func(o metav1.ListOptions) (watch.Interface, error) {
			return client.Resource(of).Watch(context.Background(), o)
		}})
		retrying, err := watchtools.NewRetryWatcherWithContext(context.Background(), w.rv, lw)
		require.NoError(t, err)
		var following sync.WaitGroup
		following.Go(func() { w.follow(retrying.ResultChan()) })
		t.Cleanup(func() { retrying.Stop(); following.Wait() })
		views = append(views, view{name: "RetryWatcher", of: of, form: asItIs, read: w.read})
	}
	return views
}

// watched is the state that follows from the events of a watch.
type watched struct {
	mu      sync.Mutex
	objects map[string]runtime.Object
	rv      string // of the newest event
	wrong   error  // the first event that can't follow from the events before
}

func (w *watched) follow(events <-chan watch.Event) {
	for e := range events {
		w.mu.Lock()
		if err := w.take(e); err != nil && w.wrong == nil {
			w.wrong = err
		}
		w.mu.Unlock()
	}
}

func (w *watched) take(e watch.Event) error {
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return fmt.Errorf("%s event: %w: %v", e.Type, err, e.Object)
	}
	key := m.GetNamespace() + "/" + m.GetName()
	if order, ok := object.CompareRV(m.GetResourceVersion(), w.rv); !ok || order <= 0 {
		return fmt.Errorf("%s of %s at %s, after an event at %s", e.Type, key, m.GetResourceVersion(), w.rv)
	}
	_, known := w.objects[key]
	if known == (e.Type == watch.Added) {
		return fmt.Errorf("%s of %s at %s; it was there before: %v", e.Type, key, m.GetResourceVersion(), known)
	}
	w.rv = m.GetResourceVersion()
	if e.Type == watch.Deleted {
		delete(w.objects, key)
		return nil
	}
	w.objects[key] = e.Object
	return nil
}

func (w *watched) read(context.Context) ([]runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.objects)), w.wrong
}
