package informer

import (
	"errors"
	"fmt"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/lru"

	"github.com/snapcache/snapcache/store"
)

const (
	chunkObjects = 128 // objects of a listing that are read and decoded together
	recentChunks = 8   // chunks kept for the handlers that need them next
	loadAhead    = 3   // chunks that are loaded, in parallel, before a handler needs them
)

// errChanged means that an object was unreadable in the state of a listing and has changed since.
var errChanged = errors.New("the object could not be read, and has changed since")

// listing is a list of a collection's objects in one state, for handlers. It holds their keys; the
// objects are read when they are delivered.
type listing struct {
	keys []string
	olds []*value    // the state of each key that handlers got last; nil except for a relist
	of   store.State // the state, for a listing of all objects

	// The lock of listings guards the fields below.
	readers int               // handlers that have not finished with the listing
	pinned  map[string]*value // the previous states of objects that have changed since; nil if unreadable
}

func (l *listing) chunks() int { return (len(l.keys) + chunkObjects - 1) / chunkObjects }

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

// item is a decoded object, or the error of reading it.
type item struct {
	object any
	err    error
}

// first returns the index in the listing of the chunk's first object.
func (c *chunk) first() int { return c.number * chunkObjects }

func (c *chunk) keys() []string {
	return c.listing.keys[c.first():min(c.first()+chunkObjects, len(c.listing.keys))]
}

// listings are the listings that handlers are reading. It is safe for concurrent use.
type listings struct {
	collection Readable
	decoding   func() Decode
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
			if l.pinned == nil {
				l.pinned = map[string]*value{}
			}
			if _, ok := l.pinned[c.Key]; !ok {
				l.pinned[c.Key] = c.old
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
	keys := c.keys()
	c.items = make([]item, len(keys))
	values := make([]*value, len(keys))
	decode := s.decoding()
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
		if pinned, ok := c.listing.pinned[key]; ok {
			values[i], c.items[i].err = pinned, nil
			if pinned == nil {
				c.items[i].err = fmt.Errorf("%s: %w", key, errChanged)
			}
		}
	}
	s.mu.Unlock()
	for i := range c.items {
		if c.items[i].err == nil {
			c.items[i].decode(values[i])
		}
	}
}

// decode decodes a value. After a panic that the process survives, the item has neither an object
// nor an error.
func (it *item) decode(v *value) {
	defer utilruntime.HandleCrash()
	it.object, it.err = v.get()
}
