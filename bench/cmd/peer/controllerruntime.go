package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/snapcache/snapcache/bench/peer"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// controllerRuntime runs controller-runtime's cache with its defaults. It is read as controllers
// read it, so each read returns a copy.
func controllerRuntime(ctx context.Context, s settings, d *delays) (*cached, error) {
	log.SetLogger(klog.NewKlogr())
	c, err := cache.New(s.config, cache.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	var handlers registrations
	r := reader{Cache: c, types: map[string]client.Object{}}
	for _, resource := range s.resources {
		r.types[resource.Name] = typeOf(resource)
		inf, err := c.GetInformer(ctx, r.types[resource.Name], cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("informer of %s: %w", resource.Name, err)
		}
		if d == nil {
			continue
		}
		handler, err := inf.AddEventHandler(d)
		if err != nil {
			return nil, fmt.Errorf("handler of %s: %w", resource.Name, err)
		}
		handlers = append(handlers, handler)
	}
	var synced atomic.Bool
	go func() { synced.Store(c.WaitForCacheSync(ctx)) }() // ends with ctx at the latest
	return &cached{
		synced:   synced.Load,
		handled:  handlers.haveSynced,
		get:      func(resource, key string) string { return r.get(ctx, resource, key) },
		versions: func() map[string]map[string]string { return r.versions(ctx) },
		stop:     func() error { return <-done },
	}, nil
}

// typeOf returns an object of the resource's Go type, or an unstructured one if it has none.
func typeOf(r peer.Resource) client.Object {
	if r.Type != nil {
		return r.Type
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.GVR.GroupVersion().WithKind(r.Kind))
	return u
}

type reader struct {
	cache.Cache
	types map[string]client.Object
}

// get waits for the cache, as controller-runtime does.
func (r reader) get(ctx context.Context, resource, key string) string {
	namespace, name, err := clientcache.SplitMetaNamespaceKey(key)
	if err != nil {
		return ""
	}
	obj := r.types[resource].DeepCopyObject().(client.Object)
	if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj); err != nil {
		return ""
	}
	return obj.GetResourceVersion()
}

func (r reader) versions(ctx context.Context) map[string]map[string]string {
	all := map[string]map[string]string{}
	for name, typ := range r.types {
		all[name] = map[string]string{}
		list, err := r.list(ctx, typ)
		if err != nil {
			continue // a missing resource is noticed
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			continue
		}
		for _, obj := range items {
			if key, err := clientcache.MetaNamespaceKeyFunc(obj); err == nil {
				all[name][key] = version(obj)
			}
		}
	}
	return all
}

func (r reader) list(ctx context.Context, typ client.Object) (client.ObjectList, error) {
	var list client.ObjectList
	if u, ok := typ.(*unstructured.Unstructured); ok {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(u.GroupVersionKind().GroupVersion().WithKind(u.GetKind() + "List"))
		list = l
	} else {
		gvk, err := apiutil.GVKForObject(typ, scheme.Scheme)
		if err != nil {
			return nil, err
		}
		obj, err := scheme.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			return nil, err
		}
		list = obj.(client.ObjectList)
	}
	return list, r.List(ctx, list)
}
