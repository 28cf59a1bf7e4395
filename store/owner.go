package store

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
)

// Owner is one opening of a collection, from [DB.Open] to [Collection.Close]. It is safe for
// concurrent use.
type Owner struct {
	info  atomic.Pointer[Info]
	err   atomic.Pointer[error] // why it has ended; nil while it owns the collection
	ended chan struct{}
}

// Info returns the Info that the collection was opened with, or opened again with.
func (o *Owner) Info() Info { return *o.info.Load() }

// Err returns nil while the collection is open, then [ErrClosed], or [ErrNoCollection] if it was
// dropped.
func (o *Owner) Err() error {
	if err := o.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Done returns a channel that is closed when the collection is free.
func (o *Owner) Done() <-chan struct{} { return o.ended }

// Owners are the owners of a store's collections. It is for implementations of [DB]. The zero value
// has no owner.
type Owners struct {
	mu sync.Mutex
	m  map[string]*Owner // by collection
}

// Take makes the caller the owner of the collection info.ID. If that has one, the error is an
// *InUseError; path is for its text.
func (s *Owners) Take(info Info, path string) (*Owner, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.m[info.ID]; o != nil {
		return nil, &InUseError{info, path, o}
	}
	o := &Owner{ended: make(chan struct{})}
	o.info.Store(&info)
	if s.m == nil {
		s.m = map[string]*Owner{}
	}
	s.m[info.ID] = o
	return o, nil
}

// Get returns the owner of a collection, nil if it has none.
func (s *Owners) Get(id string) *Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[id]
}

// Update sets the Info of an owner that has opened its collection again.
func (s *Owners) Update(o *Owner, info Info) { o.info.Store(&info) }

// End ends an ownership with the result of Err. It does nothing if the ownership has ended, or o is nil.
func (s *Owners) End(o *Owner, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o == nil || o.Err() != nil {
		return
	}
	delete(s.m, o.Info().ID)
	o.err.Store(&err)
	close(o.ended)
}

// InUseError is the error of opening a collection that has an owner. It wraps [ErrInUse].
type InUseError struct {
	Info  Info   // of the opening that failed
	Path  string // of the store's file; empty if there is none
	Owner *Owner // its Done is closed when the collection is free
}

func (e *InUseError) Error() string {
	in := cmp.Or(e.Path, "the store in memory")
	text := fmt.Sprintf("collection %s in %s: %v: its owner closes it first (Collection.Close), DB.View reads it meanwhile",
		e.Info.ID, in, ErrInUse)
	if owner, this := e.Owner.Info().Scope(), e.Info.Scope(); owner != this {
		text += fmt.Sprintf("; its owner's scope is %+v, this one's is %+v", owner, this)
	}
	return text
}

// Unwrap returns ErrInUse.
func (e *InUseError) Unwrap() error { return ErrInUse }
