package main

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// typed runs client-go's informer factory with its defaults: its clientset uses protobuf, and lists
// by a watch.
func typed(ctx context.Context, s settings, d *delays) (*cached, error) {
	return typedWith(ctx, s, d)
}

// typedTrimmed is typed with a transform that drops managedFields, as client-go's documentation
// recommends and as snapcache's agent does by default.
func typedTrimmed(ctx context.Context, s settings, d *delays) (*cached, error) {
	return typedWith(ctx, s, d, clientinformers.WithTransform(func(obj any) (any, error) {
		if m, err := meta.Accessor(obj); err == nil {
			m.SetManagedFields(nil)
		}
		return obj, nil
	}))
}

// typedVersions is typed with a transform that leaves only the fields that tell versions apart: of a
// fleet that caches whole objects, few nodes fit on one machine.
func typedVersions(ctx context.Context, s settings, d *delays) (*cached, error) {
	return typedWith(ctx, s, d, versionsOnly)
}

var versionsOnly = clientinformers.WithTransform(func(obj any) (any, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil //nolint:nilerr // a tombstone
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(),
	}}, nil
})

// typedJSON is typed with JSON, which resources without protobuf require.
func typedJSON(ctx context.Context, s settings, d *delays) (*cached, error) {
	s.config.ContentType = "application/json"
	return typedWith(ctx, s, d)
}

func typedWith(ctx context.Context, s settings, d *delays, options ...clientinformers.SharedInformerOption) (*cached, error) {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	custom, err := dynamic.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	factory := clientinformers.NewSharedInformerFactoryWithOptions(client, 0, options...)
	customs := dynamicinformer.NewDynamicSharedInformerFactory(custom, 0)
	byName := map[string]cache.SharedIndexInformer{}
	for _, r := range s.resources {
		if r.Type == nil { // it has no generated client
			byName[r.Name] = customs.ForResource(r.GVR).Informer()
			continue
		}
		generic, err := factory.ForResource(r.GVR)
		if err != nil {
			return nil, err
		}
		byName[r.Name] = generic.Informer()
	}
	c, err := informers(byName, d, func() error {
		factory.Shutdown()
		customs.Shutdown()
		return nil
	})
	factory.Start(ctx.Done())
	customs.Start(ctx.Done())
	return c, err
}

// dynamicPeer runs client-go's factory of unstructured informers.
func dynamicPeer(ctx context.Context, s settings, d *delays) (*cached, error) {
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	return fromFactory(ctx, dynamicinformer.NewDynamicSharedInformerFactory(client, 0), s, d)
}

// metadataPeer runs client-go's factory of metadata informers.
func metadataPeer(ctx context.Context, s settings, d *delays) (*cached, error) {
	client, err := metadata.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	return fromFactory(ctx, metadatainformer.NewFilteredSharedInformerFactory(client, 0, metav1.NamespaceAll, nil), s, d)
}

// untypedFactory is the common part of client-go's unstructured and metadata factories.
type untypedFactory interface {
	ForResource(resource schema.GroupVersionResource) clientinformers.GenericInformer
	Start(stop <-chan struct{})
	Shutdown()
}

func fromFactory(ctx context.Context, factory untypedFactory, s settings, d *delays) (*cached, error) {
	byName := map[string]cache.SharedIndexInformer{}
	for _, r := range s.resources {
		byName[r.Name] = factory.ForResource(r.GVR).Informer()
	}
	c, err := informers(byName, d, func() error {
		factory.Shutdown()
		return nil
	})
	factory.Start(ctx.Done())
	return c, err
}
