package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/upstream"
)

// FactoryOptions are the settings of a factory. It needs either Config or Client, and Scheme for Go
// types.
type FactoryOptions struct {
	Config *rest.Config // the connection

	// Client lists and watches in place of Config, and may be a fake: a dynamic.Interface or a typed
	// clientset, such as a kubernetes.Interface. Either serves informers of Go types and of trees;
	// ForResource over a clientset needs the resource's Go type in Scheme. The cluster's identity is
	// the UID of the namespace kube-system; if that can't be read, every cluster counts as the same.
	Client any

	// Scheme has the Go types of the objects given to InformerFor.
	Scheme *runtime.Scheme

	Resync    time.Duration // resync period of handlers without a period of their own; 0 is never
	Namespace string        // limits all informers to one namespace; empty for all

	// TweakListOptions sets the selectors of all informers; nil for none. Its other changes are not
	// part of a collection's id.
	TweakListOptions func(*metav1.ListOptions)

	// Transform is the transform of all informers, TransformName its name in the store (see
	// [WithScope]).
	Transform     cache.TransformFunc
	TransformName string

	// Store holds the objects, in a collection for each informer. Nil is a store in memory. The
	// caller owns Store and closes it after Shutdown.
	Store store.DB

	Informers []Option // further settings of each informer
}

// Factory makes informers, one for each resource, and runs them. It is safe for concurrent use.
//
// Each resource is a collection of the store, with an id made of resource, namespace, form (Go
// type, metadata, unstructured) and selectors: see [WithStore] for two factories on one store.
type Factory struct {
	opts     FactoryOptions
	cluster  *upstream.Cluster // nil with a Client
	identity func(context.Context) (string, error)
	history  reflector.History
	scope    store.Scope
	lists    lists

	mu        sync.Mutex
	informers map[factoryKey]*member
	stopping  bool
	wg        sync.WaitGroup
}

// factoryKey distinguishes informers. gvr is set only for dynamic informers, refused only for an
// informer of a nil object.
type factoryKey struct {
	typ     reflect.Type
	gvr     schema.GroupVersionResource
	refused bool
}

type member struct {
	cache.SharedIndexInformer
	started bool
}

// NewFactory returns a factory without informers.
func NewFactory(opts FactoryOptions) (*Factory, error) {
	if opts.Store == nil {
		opts.Store = memory.New()
	}
	if opts.TweakListOptions == nil {
		opts.TweakListOptions = func(*metav1.ListOptions) {}
	}
	var list metav1.ListOptions
	opts.TweakListOptions(&list)
	f := &Factory{
		opts: opts, informers: map[factoryKey]*member{},
		lists: lists{scheme: opts.Scheme, namespace: opts.Namespace, tweak: opts.TweakListOptions},
		scope: store.Scope{
			Namespace: opts.Namespace, LabelSelector: list.LabelSelector, FieldSelector: list.FieldSelector, Transform: opts.TransformName,
		},
	}
	if err := f.connect(); err != nil {
		return nil, fmt.Errorf("informer factory: %w", err)
	}
	return f, nil
}

func (f *Factory) connect() (err error) {
	config, client := f.opts.Config, f.opts.Client
	switch {
	case config == nil && client == nil:
		return errors.New("there is neither a Config nor a Client")
	case config != nil && client != nil:
		return errors.New("there are both a Config and a Client, and one of them is enough")
	case client != nil:
		if _, ok := client.(dynamic.Interface); !ok && !isClientset(client) {
			return fmt.Errorf("the Client is a %T, which is neither a dynamic.Interface nor a typed clientset", client)
		}
		f.lists.client = client
		f.identity = f.lists.identity
		return nil
	}
	if f.cluster, err = upstream.New(config); err != nil {
		return err
	}
	f.lists.config, f.lists.cluster, f.identity = config, f.cluster, f.cluster.Identity
	f.lists.http, err = rest.HTTPClientFor(config)
	return err
}

// InformerFor returns the informer of objects like obj, a Go type of the scheme. An object that
// can't be listed, or is nil, makes an informer that never syncs and reports why. obj is not kept.
func (f *Factory) InformerFor(obj runtime.Object) cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := factoryKey{typ: reflect.TypeOf(obj)}
	_, err := formOf(obj)
	if key.refused = err != nil; key.refused && key.typ == nil {
		key.typ = reflect.TypeFor[runtime.Object]()
	}
	if m, ok := f.informers[key]; ok {
		return m.SharedIndexInformer
	}
	if err != nil {
		return f.addLocked(key, nil, err, obj, schema.GroupVersionResource{Resource: fmt.Sprintf("%T", obj)}, nil)
	}
	gvk := kindOf(obj, f.opts.Scheme)
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	lw, err := f.lists.typed(obj, gvk, gvr)
	return f.addLocked(key, lw, err, obj, gvr, f.lists.direct(gvk, gvr))
}

// ForResource returns the informer of a resource as *unstructured.Unstructured.
func (f *Factory) ForResource(gvr schema.GroupVersionResource) GenericInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := factoryKey{gvr: gvr}
	if m, ok := f.informers[key]; ok {
		return GenericInformer{m.SharedIndexInformer, gvr.GroupResource()}
	}
	lw, err := f.lists.dynamic(gvr)
	return GenericInformer{f.addLocked(key, lw, err, &unstructured.Unstructured{}, gvr, nil), gvr.GroupResource()}
}

// addLocked makes an informer, of which each request fails with err if that is not nil. direct may be nil.
func (f *Factory) addLocked(
	key factoryKey, lw cache.ListerWatcher, err error, example runtime.Object, gvr schema.GroupVersionResource,
	direct func(object.Prune) *upstream.Source,
) cache.SharedIndexInformer {
	if err != nil {
		lw, direct = failing(fmt.Errorf("informer of %T (%s): %w", example, gvr, err)), nil
	}
	scope := f.scope
	scope.GVR = gvr
	opts := append([]Option{
		WithStore(f.opts.Store, collectionID(example, scope)), WithScope(scope),
		WithScheme(f.opts.Scheme), WithIdentity(f.identity), sharing(&f.history),
	}, f.opts.Informers...)
	opts = append(opts, func(o *options) { o.direct = direct })
	if f.opts.Client != nil {
		opts = append(opts, func(o *options) { o.convert = converting(example, f.opts.Scheme) })
	}
	inf := NewSharedIndexInformer(lw, example, f.opts.Resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, opts...)
	if f.opts.Transform != nil {
		// Before the start only the store can return an error, and Run reports it again.
		_ = inf.SetTransform(f.opts.Transform)
	}
	f.informers[key] = &member{SharedIndexInformer: inf}
	return inf
}

// Start is StartWithContext until stop is closed.
func (f *Factory) Start(stop <-chan struct{}) { f.StartWithContext(wait.ContextForChannel(stop)) }

// StartWithContext runs the informers that were made since the last call, until ctx ends. It does
// not block.
func (f *Factory) StartWithContext(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping {
		return
	}
	for _, m := range f.informers {
		if !m.started {
			m.started = true
			f.wg.Go(func() { m.RunWithContext(ctx) })
		}
	}
}

// WaitForCacheSync is WaitForCacheSyncWithContext until stop is closed.
func (f *Factory) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// synchronizer has the method of an informer that client-go's interface has since 0.36.
type synchronizer interface{ HasSyncedChecker() cache.DoneChecker }

// WaitForCacheSyncWithContext waits until all informers that were started have synced or ctx ends.
// The result holds by type whether the informer has synced. The informers of [Factory.ForResource]
// have one type, which has synced when all of them have.
func (f *Factory) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	f.mu.Lock()
	started := map[factoryKey]cache.SharedIndexInformer{}
	for key, m := range f.informers {
		if m.started {
			started[key] = m.SharedIndexInformer
		}
	}
	f.mu.Unlock()
	for _, inf := range started {
		select {
		case <-inf.(synchronizer).HasSyncedChecker().Done():
		case <-ctx.Done():
		}
	}
	res := cache.SyncResult{Synced: map[reflect.Type]bool{}}
	for key, inf := range started {
		typ := key.typ
		if typ == nil {
			typ = reflect.TypeFor[*unstructured.Unstructured]()
		}
		others, ok := res.Synced[typ]
		synced := inf.HasSynced()
		res.Synced[typ] = synced && (others || !ok)
		if !synced {
			res.Err = context.Cause(ctx)
		}
	}
	return res
}

// Shutdown prevents further starts and waits for the informers that run. It does not stop them: the
// caller must end the context or channel that they were started with.
func (f *Factory) Shutdown() {
	f.mu.Lock()
	f.stopping = true
	f.mu.Unlock()
	f.wg.Wait()
	if f.cluster != nil {
		f.cluster.Close()
	}
}

// InformerName returns nil: the informers are not in client-go's metrics. Its generated informers ask
// for it.
func (*Factory) InformerName() *cache.InformerName { return nil }

// GenericInformer is an informer with a lister, as in client-go's informers package.
type GenericInformer struct {
	informer cache.SharedIndexInformer
	resource schema.GroupResource
}

// Informer returns the informer.
func (g GenericInformer) Informer() cache.SharedIndexInformer { return g.informer }

// Lister returns a lister of the informer's objects.
func (g GenericInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(g.informer.GetIndexer(), g.resource)
}

// Generated is a factory for client-go's generated informers and listers. F is
// internalinterfaces.NewInformerFunc of a package that imports the typed clients:
//
//	generated := informer.Generated[internalinterfaces.NewInformerFunc]{Factory: factory}
//	pods := core.New(generated, namespace, nil).V1().Pods()
//
// Namespace and selectors are the factory's; arguments of core.New have no effect.
type Generated[F any] struct{ *Factory }

// InformerFor returns the informer of objects like obj, in place of the one that newFunc would make.
func (g Generated[F]) InformerFor(obj runtime.Object, _ F) cache.SharedIndexInformer {
	return g.Factory.InformerFor(obj)
}
