package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/upstream"
)

// sharedIndexInformer implements client-go's SharedIndexInformer with this package's Indexer and
// Processor.
type sharedIndexInformer struct {
	lw        cache.ListerWatcher
	form      form
	indexer   *Indexer
	processor *Processor
	stand     *cache.Reflector // never runs; for watch error handlers, as cache.DefaultWatchErrorHandler reads its name

	mu         sync.Mutex // guards the fields below
	watchError cache.WatchErrorHandlerWithContext
	transform  cache.TransformFunc
	started    bool
	stopped    bool
}

// NewSharedIndexInformer returns an informer of the objects that lw lists, which are like example. It
// takes the place of client-go's function of that name.
//
// [WithStore] makes it durable. Then handlers get the stored objects as their initial list as soon
// as the informer runs, with or without a server, and after that the changes since. Until the
// collection was listed once, the informer has not synced.
//
// Objects handed out, to handlers or by the indexer, are shared: the program must not change them.
// example is not kept. If it is nil, the informer never syncs: the watch error handler, the log and the
// reads of its indexer get the error.
//
// An informer owns its collection while it runs: see [store.DB.Open]. Others of the collection wait
// meanwhile, have not synced, and report [store.ErrInUse] in the same ways, until its Run has returned. The
// indexer of an informer that does not run can be read unless another informer of the collection runs.
func NewSharedIndexInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers, opts ...Option) cache.SharedIndexInformer {
	x := NewIndexer(example, indexers, opts...)
	name := fmt.Sprintf("SharedIndexInformer %T", example)
	if x.coll.refused != nil {
		example = nil // it may be a nil pointer, which the reflector would read
	}
	return &sharedIndexInformer{
		lw: lw, form: x.form, indexer: x,
		processor: NewProcessor(ProcessorOptions{
			Name: name, Collection: x.coll, Resync: resync, OnError: x.failed,
			Decoding: x.decoder.decode, SpoolDir: x.coll.dir(),
		}),
		stand: cache.NewReflectorWithOptions(lw, example, nil, cache.ReflectorOptions{Name: x.opts.id}),
	}
}

func (s *sharedIndexInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

func (s *sharedIndexInformer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &period})
}

func (s *sharedIndexInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, opts cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	r, err := s.processor.AddHandler(h, opts)
	if err != nil {
		return nil, err // returning r would make an interface that is not nil
	}
	return r, nil
}

func (s *sharedIndexInformer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*Registration)
	if !ok {
		return fmt.Errorf("a %T is not from AddEventHandler of this informer", handle)
	}
	s.processor.RemoveHandler(r)
	return nil
}

func (s *sharedIndexInformer) GetStore() cache.Store { return s.indexer }

// GetIndexer implements [cache.SharedIndexInformer]. It is an [*Indexer].
func (s *sharedIndexInformer) GetIndexer() cache.Indexer { return s.indexer }

func (s *sharedIndexInformer) AddIndexers(indexers cache.Indexers) error {
	if s.IsStopped() {
		return fmt.Errorf("indexer was not added because %w", ErrStopped)
	}
	return s.indexer.AddIndexers(indexers)
}

func (s *sharedIndexInformer) HasSynced() bool { return s.processor.synced.HasSynced() }

func (s *sharedIndexInformer) HasSyncedChecker() cache.DoneChecker { return s.processor.synced }

// LastSyncResourceVersion implements [cache.SharedInformer]: the resourceVersion at which the
// stored objects are complete; empty before the informer runs.
func (s *sharedIndexInformer) LastSyncResourceVersion() string {
	s.mu.Lock()
	started := s.started
	s.mu.Unlock()
	if !started {
		return ""
	}
	return s.indexer.LastStoreSyncResourceVersion()
}

func (s *sharedIndexInformer) SetWatchErrorHandler(h cache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { h(r, err) })
}

// SetWatchErrorHandlerWithContext implements [cache.SharedInformer]. The handler is called with
// each error that makes the informer wait before a retry, and with the error of each object that is
// left out. The Reflector that it gets never runs.
func (s *sharedIndexInformer) SetWatchErrorHandlerWithContext(h cache.WatchErrorHandlerWithContext) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	s.watchError = h
	return nil
}

// SetTransform implements [cache.SharedInformer]. f must return an object with a name, of the type
// of the informer's objects; that object is stored. With another type the informer does not sync.
// With a durable store, give the transform a name in [WithScope]: without one, each start makes a
// list.
func (s *sharedIndexInformer) SetTransform(f cache.TransformFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	name := s.indexer.opts.scope.Transform
	if name == "" && f != nil {
		name = s.indexer.unnamed
	}
	if err := s.indexer.setTransform(name); err != nil {
		return err
	}
	s.transform = f
	return nil
}

func (s *sharedIndexInformer) IsStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

func (s *sharedIndexInformer) Run(stop <-chan struct{}) {
	s.RunWithContext(wait.ContextForChannel(stop))
}

// GetController implements [cache.SharedInformer]. Its Run does nothing, as in client-go.
func (s *sharedIndexInformer) GetController() cache.Controller { return controller{s} }

// controller is the cache.Controller of an informer.
type controller struct{ s *sharedIndexInformer }

func (controller) Run(<-chan struct{})                   {}
func (controller) RunWithContext(context.Context)        {}
func (c controller) HasSynced() bool                     { return c.s.HasSynced() }
func (c controller) HasSyncedChecker() cache.DoneChecker { return c.s.HasSyncedChecker() }
func (c controller) LastSyncResourceVersion() string     { return c.s.LastSyncResourceVersion() }

// report passes err to the watch error handler. The informer must have started. A panic of the
// handler is logged.
func (s *sharedIndexInformer) report(ctx context.Context, err error) {
	if s.watchError == nil {
		return
	}
	s.indexer.call("the watch error handler", func() { s.watchError(ctx, s.stand, err) })
}

// encode returns the stored form of a listed or watched object. An error that wraps
// [object.ErrInvalid] concerns one object; the error of a transform that changes the type concerns all.
func (s *sharedIndexInformer) encode(obj runtime.Object) (o *object.Object, err error) {
	err = guarded(s.indexer.logger(), func() (err error) { // transform and codec belong to the program and may panic
		o, err = s.encodeExpected(obj)
		return err
	})
	switch {
	case errors.Is(err, errTransformedType):
		s.indexer.logger().Error("the informer stops", "collection", s.indexer.opts.id, "error", err)
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", object.ErrInvalid, err)
	}
	return o, nil
}

func (s *sharedIndexInformer) encodeExpected(obj runtime.Object) (*object.Object, error) {
	if convert := s.indexer.opts.convert; convert != nil {
		converted, err := convert(obj)
		if err != nil {
			return nil, err
		}
		obj = converted
	}
	if err := s.form.takes(obj); err != nil {
		return nil, err
	}
	if s.transform == nil {
		return s.indexer.encode(obj)
	}
	out, err := s.transform(obj)
	if err != nil {
		return nil, fmt.Errorf("transform: %w", err)
	}
	o, err := s.form.transformed(out)
	if err != nil {
		return nil, err
	}
	return s.indexer.encode(o)
}

// form is the Go type of an informer's objects and, for trees, their kind. The example that they are
// taken from is not kept: the program may write to it at any time.
type form struct {
	typ reflect.Type
	gvk schema.GroupVersionKind // of the example; only compared for trees
}

// errNoExample means that an informer was made with a nil example.
var errNoExample = errors.New("there is no example of the objects: pass a pointer to an object, such as &corev1.Pod{}")

// formOf returns the form of objects like example. It fails if the example is no pointer, or nil.
func formOf(example runtime.Object) (form, error) {
	v := reflect.ValueOf(example)
	switch {
	case !v.IsValid():
		return form{}, errNoExample
	case v.Kind() != reflect.Pointer:
		return form{}, fmt.Errorf("the example is a %T, which is not a pointer", example)
	case v.IsNil():
		return form{}, fmt.Errorf("the example is a nil %T: %w", example, errNoExample)
	}
	return form{typ: v.Type(), gvk: example.GetObjectKind().GroupVersionKind()}, nil
}

// rawType is the type of stored objects, which have any kind.
var rawType = reflect.TypeFor[*object.Object]()

// takes returns an error if obj is not of this form.
func (f form) takes(obj runtime.Object) error {
	if obj == nil {
		return errors.New("an event without an object")
	}
	sent := reflect.TypeOf(obj)
	switch {
	case sent == rawType, f.typ == rawType:
		return nil
	case sent != f.typ:
		return fmt.Errorf("%w: expected a %s, the server sent a %s", upstream.ErrWrongType, f.typ, sent)
	}
	got := obj.GetObjectKind().GroupVersionKind()
	if _, tree := obj.(runtime.Unstructured); tree && !f.gvk.Empty() && got != f.gvk {
		return fmt.Errorf("%w: expected a %s, the server sent a %s", upstream.ErrWrongType, f.gvk, got)
	}
	return nil
}

// errTransformedType means that a transform returns objects of another type than the informer's. A
// durable store has to decode its objects before any transform has run.
var errTransformedType = errors.New("the transform returns objects of another type than the informer's")

// transformed returns the result of a transform as an object, or an error if its type is not this
// form's.
func (f form) transformed(out any) (runtime.Object, error) {
	if v := reflect.ValueOf(out); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("transform: it returned no object")
	}
	o, ok := out.(runtime.Object)
	if ok && (f.typ == rawType || reflect.TypeOf(out) == f.typ || reflect.TypeOf(out) == rawType) {
		return o, nil
	}
	return nil, fmt.Errorf("%w: a %T, and the informer was made with a %s: return that type, or make the informer with an example of the other one "+
		"and a client that lists it, such as &metav1.PartialObjectMetadata{} and a metadata client", errTransformedType, out, f.typ)
}
