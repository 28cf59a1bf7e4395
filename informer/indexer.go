package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// Indexer is a [cache.Indexer] over a collection of a store. It is safe for concurrent use. The
// objects that it hands out are shared: the program must not change them. Read errors that the
// interface can't return are reported (see [WithReadErrorHandler]), and objects that can't be read
// are left out.
//
// In a store that was given by [WithStore] an informer opens the collection when it runs, and closes it
// at the end. Before and after that a read is of the stored objects, by an index a scan of them, and a
// write opens the collection for the time of the write. Both fail, with [ErrInUse], while another
// informer of the collection runs.
type Indexer struct {
	opts    options
	form    form
	coll    *handle
	decoder *decoder
	unnamed string // see unnamed
	errors  atomic.Uint64
	log     atomic.Pointer[slog.Logger]
	raw     bool // readers get the stored form
	shares  bool // the store, or the mirror of it, holds the Go values that readers get, see encode

	fed atomic.Bool // an informer runs or has run: its checkpoint is used, not rv

	writing sync.Mutex      // held by writes of callers
	one     [1]store.Change // the change that is being written, with writing locked
	rv      string          // of the newest write, if there was one; with writing locked
	written bool            // there was one; with writing locked

	mu       sync.RWMutex
	indexers cache.Indexers // replaced, not changed
}

// NewIndexer returns an indexer of objects like example, which is not kept. Without [WithStore] the
// objects are in memory. With a nil example every operation fails.
func NewIndexer(example runtime.Object, indexers cache.Indexers, opts ...Option) *Indexer {
	o := newOptions(opts)
	f, refused := formOf(example)
	if refused != nil {
		f, example = form{typ: rawType}, &object.Object{} // the code below needs an example
	}
	_, inMemory := o.db.(*memory.DB)
	if inMemory && o.decoded == All {
		o.decoded = -1 // it holds all objects itself
	}
	switch {
	case o.codec != nil:
	case inMemory:
		o.codec = NewCodec(example, o.scheme)
	default:
		o.codec = defaultCodec(example, o.scheme)
	}
	if inMemory {
		o.drop = object.Prune{}
	} else if packed(o.codec) && refused == nil {
		o.drop, refused = o.drop.For(example)
	}
	x := &Indexer{opts: o, form: f, unnamed: unnamed(), indexers: maps.Clone(indexers)}
	x.log.Store(cmp.Or(o.logger, slog.Default()))
	x.coll = &handle{db: o.db, private: o.private, failed: x.failed, info: o.info(example), refused: refused}
	x.decoder = &decoder{codec: o.codec, detector: cache.NewCacheMutationDetector(fmt.Sprintf("%T", example)), size: o.decoded}
	if o.decoded < 0 {
		x.decoder.size = decodedWithin(debug.SetMemoryLimit(-1)) // it only reads the limit
	}
	_, x.raw = o.codec.(rawCodec)
	if o.decoded == All {
		x.coll.decode = x.withGo
	}
	x.shares = (inMemory && o.decoded < 0 || o.decoded == All) && !x.raw
	if !x.raw && o.decoded != 0 && o.decoded != All {
		x.decoder.kept.Store(lru.New(x.decoder.size))
	}
	x.coll.indexes = x.storeIndexes(x.indexers)
	if o.private && refused == nil {
		_, x.coll.refused = x.coll.own()
	}
	return x
}

// ReadErrors returns the number of read errors so far.
func (x *Indexer) ReadErrors() uint64 { return x.errors.Load() }

// failed counts, logs and reports a read error.
func (x *Indexer) failed(err error) {
	x.errors.Add(1)
	x.logger().Error("could not read from the cache", "collection", x.opts.id, "error", err)
	x.call("the handler of read errors", func() { x.opts.readError(err) })
}

// call calls a handler of the program, and logs its panic.
func (x *Indexer) call(name string, handler func()) {
	err := guarded(x.logger(), func() error {
		handler()
		return nil
	})
	if err != nil {
		x.logger().Error(name+" failed", "collection", x.opts.id, "error", err)
	}
}

// logger returns the logger of [WithLogger], or else the one in the context of the informer that
// runs, or else slog's default.
func (x *Indexer) logger() *slog.Logger { return x.log.Load() }

// logWith sets the logger from a run's context, if the context has one and the program set none.
func (x *Indexer) logWith(ctx context.Context) {
	if l := logr.FromContextAsSlogLogger(ctx); l != nil && x.opts.logger == nil {
		x.log.Store(l)
	}
}

// setTransform sets the name of the transform in the collection's scope. It is called before the
// informer starts.
func (x *Indexer) setTransform(name string) error {
	x.coll.opening.Lock()
	defer x.coll.opening.Unlock()
	x.coll.info.Transform = x.opts.transform(name)
	return x.coll.reopenLocked(x.coll.indexes)
}

// AddIndexers adds indexers, at any time. If the collection is open, it waits for a list that is in
// progress, and builds the indexes from the stored objects. It fails if a name is taken.
func (x *Indexer) AddIndexers(more cache.Indexers) error {
	x.coll.opening.Lock()
	defer x.coll.opening.Unlock()
	all := maps.Clone(x.GetIndexers())
	if all == nil {
		all = cache.Indexers{}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if _, taken := all[name]; taken {
			return fmt.Errorf("indexer conflict: there is an index %q", name)
		}
		all[name] = more[name]
	}
	if err := x.coll.reopenLocked(x.storeIndexes(all)); err != nil {
		return fmt.Errorf("add indexers: %w", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.indexers = all
	return nil
}

// GetIndexers returns the indexers. The caller must not change the map.
func (x *Indexer) GetIndexers() cache.Indexers {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.indexers
}

// Get returns the object that is stored under obj's key.
func (x *Indexer) Get(obj any) (item any, exists bool, err error) {
	key, err := deltafifo.KeyOf(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return x.GetByKey(key)
}

// GetByKey returns the object that is stored under key.
func (x *Indexer) GetByKey(key string) (item any, exists bool, err error) {
	if c := x.inMemory(); c != nil {
		if v, ok := c.Value(key); ok { // otherwise get returns the error
			if _, encoded := v.(*object.Object); !encoded {
				return v, true, nil
			}
		}
	}
	item, err = x.get(key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		x.failed(err)
		return nil, false, err
	}
	return item, true, nil
}

func (x *Indexer) get(key string) (any, error) {
	read := x.reading()
	if c := x.coll.inMemory(); c != nil {
		if item, err := read(c, key); !errors.Is(err, store.ErrClosed) { // if it was closed, the stored object is read
			return item, err
		}
	}
	v, err := x.coll.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return read(v, key)
}

// reading returns a function that reads and decodes objects, of a collection in memory or of views that are
// opened after the call.
func (x *Indexer) reading() func(v store.Lookup, key string) (any, error) {
	decode := x.decoder.decoding()
	kept := x.decoder.kept.Load()
	return func(v store.Lookup, key string) (any, error) {
		if kept != nil { // an object in the cache is not read from the store
			h, err := v.Header(key)
			if err != nil {
				return nil, err
			}
			if item, ok := cached(kept, h.Key, version{h.UID, h.RV}); ok {
				return item, nil
			}
		}
		o, err := v.Get(key)
		if err != nil {
			return nil, err
		}
		return decode(o)
	}
}

// List returns all objects: ordered by key, or in no order if they are in memory. If decoding takes
// longer than a view may stay open, the objects may be of more than one state.
func (x *Indexer) List() []any {
	if c := x.inMemory(); c != nil {
		if list, ok := x.listInMemory(c); ok {
			return list
		}
	}
	decode := x.decoder.scanning()
	list := make([]any, 0, x.coll.State().Count)
	for o, err := range scan(x.coll.View, store.View.Objects, (*object.Object).Key) {
		if err != nil && !errors.As(err, new(*store.CorruptionError)) {
			x.failed(err)
			return nil // and not a part of them
		}
		var item any
		if err == nil {
			item, err = decode(o)
		}
		if err != nil {
			x.failed(err)
			continue
		}
		list = append(list, item)
	}
	return list
}

// scan iterates over all elements of a collection that read returns, in the order of their keys. It
// goes on after errors of single ones, and in another view if one expires.
func scan[T any](
	view func() (store.View, error), read func(v store.View, prefix, after string) iter.Seq2[T, error], keyOf func(T) string,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for last, expired := "", true; expired; {
			v, err := view()
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			began := last
			expired = false
			for item, err := range read(v, "", last) {
				if err == nil {
					last = keyOf(item)
				}
				if expired = errors.Is(err, store.ErrViewExpired) && last != began; expired {
					break
				}
				if !yield(item, err) {
					v.Close()
					return
				}
			}
			v.Close()
		}
	}
}

// ListKeys returns the keys of all objects, in order.
func (x *Indexer) ListKeys() []string {
	v, err := x.coll.View()
	if err != nil {
		x.failed(err)
		return nil
	}
	defer v.Close()
	keys := make([]string, 0, v.State().Count)
	for h, err := range v.Headers("", "") {
		if err != nil {
			x.failed(err)
			continue
		}
		keys = append(keys, h.Key)
	}
	return keys
}

// Index returns the objects that share a value of an index with obj, ordered by key.
func (x *Indexer) Index(name string, obj any) ([]any, error) {
	fn, err := x.indexFunc(name)
	if err != nil {
		return nil, err
	}
	var values []string
	err = guarded(x.logger(), func() error {
		values, err = fn(obj)
		return err
	})
	if err != nil {
		return nil, err
	}
	return x.byValues(name, fn, values)
}

// ByIndex returns the objects that an index files under value, ordered by key.
func (x *Indexer) ByIndex(name, value string) ([]any, error) {
	fn, err := x.indexFunc(name)
	if err != nil {
		return nil, err
	}
	return x.byValues(name, fn, []string{value})
}

func (x *Indexer) byValues(name string, fn cache.IndexFunc, values []string) ([]any, error) {
	if c := x.inMemory(); c != nil && len(values) == 1 {
		if list, ok := x.byValueInMemory(c, storeName(name, fn), storeValue(values[0])); ok {
			return list, nil
		}
	}
	read := x.reading()
	v, err := x.coll.View()
	if err != nil {
		x.failed(err)
		return nil, err
	}
	defer v.Close()
	keys, err := x.indexKeys(v, name, fn, values)
	if err != nil {
		x.failed(err)
		return nil, err
	}
	list := make([]any, 0, len(keys))
	for _, key := range keys {
		item, err := read(v, key)
		if err != nil {
			x.failed(err)
			if errors.Is(err, store.ErrViewExpired) {
				return nil, err // no partial result
			}
			continue
		}
		list = append(list, item)
	}
	return list, nil
}

// IndexKeys returns the keys of the objects that an index files under value, in order.
func (x *Indexer) IndexKeys(name, value string) ([]string, error) {
	fn, err := x.indexFunc(name)
	if err != nil {
		return nil, err
	}
	v, err := x.coll.View()
	var keys []string
	if err == nil {
		defer v.Close()
		keys, err = x.indexKeys(v, name, fn, []string{value})
	}
	if err != nil {
		x.failed(err)
	}
	return keys, err
}

func (x *Indexer) indexKeys(v store.View, name string, fn cache.IndexFunc, values []string) ([]string, error) {
	keys := []string{}
	for _, value := range values {
		for key, err := range v.IndexKeys(storeName(name, fn), storeValue(value), "") {
			if err != nil {
				return nil, err
			}
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// ListIndexFuncValues returns the values of an index, in order; none for an unknown index.
func (x *Indexer) ListIndexFuncValues(name string) []string {
	values := []string{}
	fn, err := x.indexFunc(name)
	if err != nil {
		return values
	}
	v, err := x.coll.View()
	if err != nil {
		x.failed(err)
		return values
	}
	defer v.Close()
	for e, err := range v.IndexEntries(storeName(name, fn), "", store.IndexEntry{}) {
		if err != nil {
			x.failed(err)
			continue
		}
		if n := len(values); n == 0 || values[n-1] != e.Value {
			values = append(values, e.Value)
		}
	}
	return values
}

func (x *Indexer) indexFunc(name string) (cache.IndexFunc, error) {
	fn, ok := x.GetIndexers()[name]
	if !ok {
		return nil, fmt.Errorf("index with name %s does not exist: %w", name, store.ErrNoIndex)
	}
	return fn, nil
}
