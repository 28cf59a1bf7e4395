package informer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tidwall/btree"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/lru"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

const (
	chunkObjects = 64 // objects of a listing that are read and decoded together
	recentChunks = 16 // chunks kept for the handlers that need them next
	loadAhead    = 3  // chunks that are loaded, in parallel, before a handler needs them
)

// errChanged means that an object was unreadable in the state of a listing and has changed since.
var errChanged = errors.New("the object could not be read, and has changed since")

// listing is a list of a collection's objects in one state, for handlers: of all, or of the ones that a
// relist has changed. The objects are read when they are delivered.
type listing struct {
	of     store.State // the state, for a listing of all objects
	bounds []string    // of all objects: the key before each chunk

	keys []string // of a relist
	olds []*value // the state of each of these keys that handlers got last; nil for none

	// The lock of listings guards the fields below.
	readers int                       // handlers that have not finished with the listing
	pinned  btree.Map[string, before] // the previous states of objects that have changed since
}

// before is the state of an object before a change.
type before struct {
	*value      // nil if it is not known
	added  bool // there was no object
}

func (l *listing) chunks() int {
	return len(l.bounds) + (len(l.keys)+chunkObjects-1)/chunkObjects
}

// chunk is a run of decoded objects of a listing. The handlers that get them share it.
type chunk struct {
	chunkAt
	done  chan struct{} // closed when items is complete
	items []item
}

type chunkAt struct {
	listing *listing
	number  int
}

// item is a decoded object, or the error of reading it, and the same of its state before a relist, if there was
// one.
type item struct {
	object, before any
	err, beforeErr error
}

// first returns the index in a relist of the chunk's first object.
func (c *chunk) first() int { return c.number * chunkObjects }

// keys returns the chunk's keys, of a relist.
func (c *chunk) keys() []string {
	return c.listing.keys[c.first():min(c.first()+chunkObjects, len(c.listing.keys))]
}

// bounds returns the key before the chunk's first and, unless it is the last chunk, its last key, of a listing
// of all objects.
func (c *chunk) bounds() (after, last string) {
	all := c.listing.bounds
	if c.number+1 < len(all) {
		last = all[c.number+1]
	}
	return all[c.number], last
}

// listings are the listings that handlers are reading. It is safe for concurrent use.
type listings struct {
	collection Readable
	decoding   func(keep bool) Decode
	wg         *sync.WaitGroup // for the goroutines that load chunks
	loading    chan struct{}   // one element for each chunk that is being loaded

	mu     sync.Mutex
	open   map[*listing]struct{} // the listings that have readers
	newest *listing              // newest listing of all objects; nil if there is none or an object has changed since
	recent *lru.Cache            // chunks, by chunkAt
}

// shared returns the listing of all objects in a state, nil if no handler is reading it.
func (s *listings) shared(state store.State) *listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil || s.newest.of != state {
		return nil
	}
	return s.newest
}

// share makes l the result of shared, until an object changes or the last reader of l is done.
func (s *listings) share(l *listing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = l
}

// acquire adds a reader of l.
func (s *listings) acquire(l *listing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.readers++
	s.open[l] = struct{}{}
}

// release removes a reader of l.
func (s *listings) release(l *listing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.readers--; l.readers > 0 {
		return
	}
	delete(s.open, l)
	for number := range l.chunks() {
		s.recent.Remove(chunkAt{l, number})
	}
	if s.newest == l {
		s.newest = nil
	}
}

// pin keeps the old states of objects that the store is about to change, for listings that are not
// delivered yet.
func (s *listings) pin(changes []*change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(changes) > 0 {
		s.newest = nil
	}
	for l := range s.open {
		for _, c := range changes {
			if _, ok := l.pinned.Get(c.Key); !ok {
				l.pinned.Set(c.Key, before{c.old, c.Type == store.Added})
			}
		}
	}
}

// chunk returns a chunk of l. The chunk is loaded once its done is closed.
func (s *listings) chunk(l *listing, number int) *chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := chunkAt{l, number}
	if c, ok := s.recent.Get(at); ok {
		return c.(*chunk)
	}
	c := &chunk{chunkAt: at, done: make(chan struct{})}
	s.recent.Add(at, c)
	s.wg.Go(func() {
		s.loading <- struct{}{}
		defer func() { <-s.loading }()
		s.load(c)
	})
	return c
}

// passed is called when a handler has got all objects of a chunk. If no other one reads the listing, none needs it.
func (s *listings) passed(c *chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.listing.readers == 1 {
		s.recent.Remove(c.chunkAt)
	}
}

// lookups returns a reader of single objects of a collection's newest state, and the function that closes
// it: a view or, in memory, the collection itself, because a view makes its next change slower.
func lookups(c Readable) (l store.Lookup, end func(), err error) {
	if m := memoryOf(c); m != nil {
		return m, func() {}, nil
	}
	v, err := c.View()
	if err != nil {
		return nil, nil, err
	}
	return v, v.Close, nil
}

// load reads and decodes the objects of a chunk, as they are in the state of the listing.
func (s *listings) load(c *chunk) {
	defer close(c.done)
	decode := s.decoding(false)
	if c.listing.bounds != nil {
		s.loadAll(c, decode)
		return
	}
	keys := c.keys()
	c.items = make([]item, len(keys))
	values := make([]*value, len(keys))
	now, end, err := lookups(s.collection)
	for i, key := range keys {
		values[i] = &value{decode: decode}
		if c.items[i].err = err; err == nil {
			values[i].object, c.items[i].err = now.Get(key)
		}
	}
	if err == nil {
		end()
	}
	s.mu.Lock()
	for i, key := range keys {
		// pin is called before the change, so an object that is not pinned was read in the
		// listing's state.
		if pinned, ok := c.listing.pinned.Get(key); ok {
			values[i], c.items[i].err = pinned.value, pinned.err(key)
		}
	}
	s.mu.Unlock()
	for i := range c.items {
		if c.items[i].err == nil {
			c.items[i].decode(values[i], c.old(i))
		}
	}
}

// loadAll is load for a listing of all objects, which were between two keys then.
func (s *listings) loadAll(c *chunk, decode Decode) {
	after, last := c.bounds()
	type state struct {
		*value
		err error // of reading it
	}
	states := map[string]state{}
	err := s.between(after, last, func(key string, o *object.Object, err error) {
		states[key] = state{&value{object: o, decode: decode}, err}
	})
	s.mu.Lock()
	c.listing.pinned.Ascend(after, func(key string, pinned before) bool {
		if last != "" && key > last {
			return false
		}
		if pinned.added {
			delete(states, key)
		} else if key != after {
			states[key] = state{pinned.value, pinned.err(key)}
		}
		return true
	})
	s.mu.Unlock()
	if err != nil {
		c.items = append(c.items, item{err: err})
	}
	for _, key := range slices.Sorted(maps.Keys(states)) {
		it := item{err: states[key].err}
		if it.err == nil {
			it.decode(states[key].value, nil)
		}
		c.items = append(c.items, it)
	}
}

// between calls add with each object after a key, up to the last one, empty for all. It returns the error of
// the read.
func (s *listings) between(after, last string, add func(key string, o *object.Object, err error)) error {
	v, err := s.collection.View()
	if err != nil {
		return err
	}
	defer v.Close()
	for o, err := range v.Objects("", after) {
		key := ""
		if corrupt, ok := errors.AsType[*store.CorruptionError](err); ok {
			key = corrupt.Key
		} else if err == nil {
			key = o.Key()
		}
		switch {
		case key == "":
			return err
		case last != "" && key > last:
			return nil
		}
		add(key, o, err)
	}
	return nil
}

// err returns an error if the state is not known.
func (b before) err(key string) error {
	if b.value == nil {
		return fmt.Errorf("%s: %w", key, errChanged)
	}
	return nil
}

// old returns the state before a relist of the object i of the chunk, nil for none.
func (c *chunk) old(i int) *value {
	if c.listing.olds == nil {
		return nil
	}
	return c.listing.olds[c.first()+i]
}

// decode decodes a value, and the state before it, which is not kept in it: the listing has it until its last
// chunk is delivered. After a panic that the process survives, the item has neither an object nor an error.
func (it *item) decode(v, old *value) {
	defer utilruntime.HandleCrash()
	if old != nil {
		it.before, it.beforeErr = old.fresh()
	}
	it.object, it.err = v.get()
}
