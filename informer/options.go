package informer

import (
	"context"
	"log/slog"
	"math"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/upstream"
)

// decodedWithin returns how many decoded objects are kept if the store holds only encoded ones and
// [WithDecoded] is not given: 1,024, or one for each 256 KiB of a small memory limit, in bytes. A decoded
// pod takes some 30 KiB, so that is about an eighth of the limit.
func decodedWithin(limit int64) int { return int(min(max(1, limit>>18), 1024)) }

// All keeps all objects decoded: see [WithDecoded].
const All = math.MaxInt

// Option is a setting of [NewSharedIndexInformer] and [NewIndexer].
type Option func(*options)

type options struct {
	db        store.DB
	private   bool // db is a store of this informer alone
	id        string
	scope     store.Scope
	scheme    *runtime.Scheme
	codec     Codec
	decoded   int // -1 if not set
	versions  map[string]string
	identity  func(context.Context) (string, error)
	readError func(error)
	metrics   *Metrics
	logger    *slog.Logger // nil for the logger of the run, see WithLogger
	watchList bool
	convert   func(runtime.Object) (runtime.Object, error) // nil for none
	drop      object.Prune                                 // of each object, before it is stored
	direct    func(object.Prune) *upstream.Source          // reads encoded objects; nil for none
	history   *reflector.History                           // of the server; nil if no other informer shares it
}

// sharing makes informers of one server share the proofs that it was restored.
func sharing(h *reflector.History) Option { return func(o *options) { o.history = h } }

// member returns the informer's part in the server's history; nil for none. A resource of a group that is not
// built in may be one of an aggregated API, which has a datastore of its own.
func (o *options) member(group string) *reflector.Member {
	if o.history == nil {
		return nil
	}
	return o.history.Join(!upstream.MayBeCustom(group))
}

func newOptions(opts []Option) options {
	o := options{
		id: "cache", decoded: -1, versions: map[string]string{},
		identity:  func(context.Context) (string, error) { return "", nil },
		readError: func(error) {}, metrics: NewMetrics(),
	}
	for _, opt := range opts {
		opt(&o)
	}
	if o.db == nil {
		o.db, o.private = memory.New(), true
	}
	return o
}

// WithStore keeps the objects in db, in the collection id. An id always stands for one resource in one
// form (a Go type, trees, or JSON), in one namespace under the same selectors; see [WithScope] for
// changes. The caller closes the store after the informer has stopped.
//
// Informers with the same id and db, or wrappers of one db, wait for each other: see
// [NewSharedIndexInformer].
func WithStore(db store.DB, id string) Option {
	return func(o *options) { o.db, o.id = db, id }
}

// WithScope declares the scope of the ListerWatcher: the resource, namespace and selectors, and the
// name of the transform. If it changes, the stored objects are delivered at the start, and then listed
// again. Without WithScope a ListerWatcher that has changed goes unnoticed. Kind and Namespaced are not
// used: the kind is taken from the informer's objects.
func WithScope(s store.Scope) Option { return func(o *options) { o.scope = s } }

// WithScheme sets the scheme that has the kinds of Go types, so that objects are stored with
// apiVersion and kind: client-go's scheme.Scheme, or the program's own.
func WithScheme(s *runtime.Scheme) Option { return func(o *options) { o.scheme = s } }

// WithCodec replaces the default codec: [NewProtobufCodec] for Go types with a protobuf form, except in
// a store in memory, else [NewCodec]. The informer's objects must be of the type
// that the codec was made for.
func WithCodec(c Codec) Option { return func(o *options) { o.codec = c } }

// WithDrop drops fields of each object before it is stored, such as [object.ManagedFields], which is
// half of a pod: paths have the form of [object.NewPrune]'s, and are part of the scope. Unlike a transform it
// takes no decoding. It has no effect in a store in memory, which holds the objects that the client
// returned.
func WithDrop(paths ...string) Option {
	return func(o *options) { o.drop = object.NewPrune(paths...) }
}

// WithDecoded keeps the n objects that were read or changed last in decoded form. The default is 1024, or
// one for each 256 KiB of Go's memory limit if that is less than 256 MiB. Without this option, a store in
// memory holds the objects themselves that the client returned, and the program must not change them
// afterwards.
//
// With [All] a durable store's objects are all in memory too, in the same way and also in their stored
// form, and so are the indexes. Both are made when the collection is opened: [WithIndexVersion] has no
// effect. A read does not notice that the store was closed.
func WithDecoded(n int) Option { return func(o *options) { o.decoded = n } }

// WithIndexVersion promises that the function of an index returns the same values for the same
// object as long as version is the same. Without it the index is built again at each start.
func WithIndexVersion(index, version string) Option {
	return func(o *options) { o.versions[index] = version }
}

// WithIdentity sets the function that returns the identity of the cluster, such as upstream's
// Cluster.Identity. Objects that were stored from another cluster are listed again. Without it
// every cluster counts as the same.
func WithIdentity(f func(context.Context) (string, error)) Option {
	return func(o *options) { o.identity = f }
}

// WithReadErrorHandler sets the function that gets each error in reading the store. It is called in
// the reader's goroutine, which may hold the store's locks: it must not use the store. Such errors
// are counted ([Indexer.ReadErrors]) and logged in any case.
func WithReadErrorHandler(f func(error)) Option { return func(o *options) { o.readError = f } }

// WithMetrics adds the informer to m while the informer runs.
func WithMetrics(m *Metrics) Option { return func(o *options) { o.metrics = m } }

// WithLogger sets the logger for changes of state and errors. The default is the logger in the
// context of RunWithContext (see klog.NewContext), or [slog.Default] if the context has none.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// WithWatchList makes lists by a watch (sendInitialEvents), see [reflector.ListWatchOptions].WatchList.
// The default is pages, which are compressed.
func WithWatchList() Option { return func(o *options) { o.watchList = true } }

// info describes the collection of objects like example, as far as it is known.
func (o *options) info(example runtime.Object) store.Info {
	gvk, gvr := kindOf(example, o.scheme), o.scope.GVR
	if gvr.Empty() {
		gvr = guessResource(example, gvk)
	}
	return store.Info{
		ID: o.id, Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Kind: gvk.Kind, Namespaced: true,
		Namespace: o.scope.Namespace, LabelSelector: o.scope.LabelSelector, FieldSelector: o.scope.FieldSelector,
		Transform: o.transform(o.scope.Transform), Encoding: o.codec.Encoding(),
	}
}

// transform returns the name of everything that changes an object before it is stored: the dropped
// fields, and the transform of that name, empty for none.
func (o *options) transform(name string) string {
	if !o.drop.None() && name != "" {
		name = "," + name
	}
	return o.drop.ID() + name
}

// guessResource returns the resource of objects like example, or their Go type if their kind is not
// known; empty for trees and JSON, whose Go type is the same for every kind.
func guessResource(example runtime.Object, gvk schema.GroupVersionKind) schema.GroupVersionResource {
	if !gvk.Empty() {
		gvr, _ := meta.UnsafeGuessKindToResource(gvk)
		return gvr
	}
	switch example.(type) {
	case runtime.Unstructured, *object.Object:
		return schema.GroupVersionResource{}
	}
	t := reflect.TypeOf(example).Elem()
	return schema.GroupVersionResource{Resource: t.PkgPath() + "." + t.Name()}
}
