package informer

import (
	"context"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// lists makes ListerWatchers of one namespace under one set of selectors.
type lists struct {
	config    *rest.Config
	client    *http.Client
	scheme    *runtime.Scheme
	namespace string
	tweak     func(*metav1.ListOptions)
}

// typed lists Go types.
func (l lists) typed(gvk schema.GroupVersionKind, gvr schema.GroupVersionResource) (cache.ListerWatcher, error) {
	if l.scheme == nil || !l.scheme.Recognizes(gvk) {
		return nil, errors.New("the factory's scheme does not know the type")
	}
	cfg := rest.CopyConfig(l.config)
	gv := gvk.GroupVersion()
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(l.scheme).WithoutConversion()
	c, err := rest.RESTClientForConfigAndClient(cfg, l.client)
	if err != nil {
		return nil, err
	}
	return cache.NewFilteredListWatchFromClient(c, gvr.Resource, l.namespace, l.tweak), nil
}

// dynamic lists trees.
func (l lists) dynamic(gvr schema.GroupVersionResource) (cache.ListerWatcher, error) {
	client, err := dynamic.NewForConfigAndClient(l.config, l.client)
	if err != nil {
		return nil, err
	}
	r := client.Resource(gvr).Namespace(l.namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			l.tweak(&opts)
			return r.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			l.tweak(&opts)
			return r.Watch(ctx, opts)
		},
	}, nil
}

// failing lists nothing and says why.
func failing(err error) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, err },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, err },
	}
}
