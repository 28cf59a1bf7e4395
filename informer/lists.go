package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/upstream"
)

// lists makes ListerWatchers of one namespace under one set of selectors.
type lists struct {
	config    *rest.Config
	cluster   *upstream.Cluster // nil with a client
	http      *http.Client
	client    any // in place of config and http; see FactoryOptions.Client
	scheme    *runtime.Scheme
	namespace string
	tweak     func(*metav1.ListOptions)
}

type (
	listFunc  = func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watchFunc = func(context.Context, metav1.ListOptions) (watch.Interface, error)
)

// typed returns a ListerWatcher of Go types like example. The caller has to convert the trees of a
// dynamic client.
func (l lists) typed(example runtime.Object, gvk schema.GroupVersionKind, gvr schema.GroupVersionResource) (cache.ListerWatcher, error) {
	if l.scheme == nil || !l.scheme.Recognizes(gvk) {
		return nil, errors.New("the factory's scheme does not know the type")
	}
	if d, ok := l.client.(dynamic.Interface); ok {
		return l.trees(d, gvr), nil
	}
	if l.client != nil {
		return l.typedBy(l.client, reflect.TypeOf(example))
	}
	cfg := rest.CopyConfig(l.config)
	gv := gvk.GroupVersion()
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(l.scheme).WithoutConversion()
	if l.packed() {
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	c, err := rest.RESTClientForConfigAndClient(cfg, l.http)
	if err != nil {
		return nil, err
	}
	return cache.NewFilteredListWatchFromClient(c, gvr.Resource, l.namespace, l.tweak), nil
}

// packed reports whether to ask the server for protobuf, which the program can prevent by a content
// type in its configuration.
func (l lists) packed() bool {
	c := l.config.ContentConfig
	return c.AcceptContentTypes == "" && c.ContentType == "" || strings.Contains(c.AcceptContentTypes+c.ContentType, runtime.ContentTypeProtobuf)
}

// direct returns a constructor for a Source that reads undecoded bytes, or nil if objects must be decoded
// or TweakListOptions sets anything but selectors.
func (l lists) direct(gvk schema.GroupVersionKind, gvr schema.GroupVersionResource) func(object.Prune) *upstream.Source {
	var opts metav1.ListOptions
	l.tweak(&opts)
	selectors := metav1.ListOptions{LabelSelector: opts.LabelSelector, FieldSelector: opts.FieldSelector}
	if l.cluster == nil || gvk.Empty() || !l.packed() || !reflect.DeepEqual(opts, selectors) {
		return nil
	}
	return func(drop object.Prune) *upstream.Source {
		return l.cluster.Source(upstream.SourceOptions{
			Resource: upstream.Resource{GVR: gvr, Kind: gvk.Kind}, Namespace: l.namespace,
			LabelSelector: opts.LabelSelector, FieldSelector: opts.FieldSelector, Prune: drop, Protobuf: true,
		})
	}
}

// dynamic returns a ListerWatcher of trees. The caller has to convert the Go types of a typed
// client.
func (l lists) dynamic(gvr schema.GroupVersionResource) (cache.ListerWatcher, error) {
	if d, ok := l.client.(dynamic.Interface); ok {
		return l.trees(d, gvr), nil
	}
	if l.client != nil {
		typ, err := goType(l.scheme, gvr)
		if err != nil {
			return nil, err
		}
		return l.typedBy(l.client, typ)
	}
	d, err := dynamic.NewForConfigAndClient(l.config, l.http)
	if err != nil {
		return nil, err
	}
	return l.trees(d, gvr), nil
}

func (l lists) trees(d dynamic.Interface, gvr schema.GroupVersionResource) cache.ListerWatcher {
	r := d.Resource(gvr).Namespace(l.namespace)
	return l.listWatch(d, func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return r.List(ctx, opts) }, r.Watch)
}

// typedBy returns a ListerWatcher of a Go type over a typed clientset.
func (l lists) typedBy(clientset any, typ reflect.Type) (cache.ListerWatcher, error) {
	r, err := resourceOf(clientset, typ, l.namespace)
	if err != nil {
		return nil, err
	}
	return l.listWatch(clientset, r.list, r.watch), nil
}

func (l lists) listWatch(client any, list listFunc, watches watchFunc) cache.ListerWatcher {
	return &clientLists{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			l.tweak(&opts)
			return list(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			l.tweak(&opts)
			return watches(ctx, opts)
		},
	}, client}
}

// clientLists is a ListWatch of a client that may not support lists by a watch, as fakes do not.
type clientLists struct {
	*cache.ListWatch
	client any
}

// IsWatchListSemanticsUnSupported is the method that [reflector.LacksWatchList] asks.
func (l *clientLists) IsWatchListSemanticsUnSupported() bool {
	return reflector.LacksWatchList(l.client)
}

// identity returns the identity of the client's cluster, as upstream's Cluster.Identity does; empty
// if the client can't read the namespace kube-system.
func (l lists) identity(ctx context.Context) (string, error) {
	var found metav1.Object
	var err error
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if d, ok := l.client.(dynamic.Interface); ok {
		found, err = d.Resource(gvr).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	} else {
		typ, unknown := goType(l.scheme, gvr)
		if unknown != nil {
			return "", nil
		}
		namespaces, unknown := resourceOf(l.client, typ, "")
		if unknown != nil {
			return "", nil
		}
		found, err = namespaces.get(ctx, metav1.NamespaceSystem)
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("identity of the cluster: %w", err)
	case found.GetUID() == "":
		return "", nil
	}
	return "uid:" + string(found.GetUID()), nil
}

// failing returns a ListerWatcher whose requests fail with err.
func failing(err error) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, err },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, err },
	}
}
