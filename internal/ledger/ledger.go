package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// purgeInterval is the time after which expired values are deleted with the next change.
const purgeInterval = time.Hour

// Options describe the values of a Ledger. All fields but Expired, MaxBytes and FlushDelay are
// required.
type Options[T any] struct {
	// Resource and Kind name the collection.
	Resource, Kind string

	// Owner returns the owner of a value, and its time in the order of deletion: if there are too many
	// values, the ones with the earliest times go first.
	Owner func(v *T, now time.Time) (owner string, at time.Time)

	// Expired reports whether a value is of no use any more; nil if values are never deleted by a
	// clock.
	Expired func(v *T, now time.Time) bool

	// Max and MaxBytes limit the stored values and their bytes. MaxBytes is 0 for no limit.
	Max, MaxBytes int64

	// FlushDelay is how long a change may wait for others before it is durable; 0 if it is durable
	// when Update returns.
	FlushDelay time.Duration

	Log *slog.Logger
}

// Ledger is the values of one type in a store. It is safe for concurrent use.
type Ledger[T any] struct {
	db         store.DB
	collection store.Collection
	opts       Options[T]

	mu       sync.Mutex // held while the collection is written
	flushing bool       // a flush comes within FlushDelay
	purged   time.Time
}

// Open returns the values that are stored in db, which the caller closes.
func Open[T any](db store.DB, opts Options[T]) (*Ledger[T], error) {
	c, err := db.Open(store.Info{
		ID: opts.Resource, Group: "snapcache", Version: "v1", Resource: opts.Resource, Kind: opts.Kind,
	})
	if err != nil {
		return nil, err
	}
	return &Ledger[T]{db: db, collection: c, opts: opts}, nil
}

// Get returns a value, or an error that wraps [store.ErrNotFound].
func (l *Ledger[T]) Get(key string) (*T, error) {
	v, err := l.collection.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	o, err := v.Get(key)
	if err != nil {
		return nil, err
	}
	value := new(T)
	if err := o.Into(value); err != nil {
		return nil, err
	}
	return value, nil
}

// Update replaces the value of a key by the result of next: nil deletes it, and the same pointer leaves
// it as XX
func (l *Ledger[T]) Update(key string, now time.Time, next func(was *T) *T) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, err := l.Get(key)
	value := next(was)
	change := store.Change{Key: key}
	var room []store.Change
	switch {
	case value == nil && errors.Is(err, store.ErrNotFound), value != nil && value == was:
		return nil
	case value != nil:
		change.Object, err = encode(key, value)
		if err == nil {
			room, err = l.makeRoom(key, now)
		}
		if err != nil {
			return err
		}
	}
	if err := l.collection.Apply(store.Batch{Changes: append(room, change)}); err != nil {
		return err
	}
	if l.opts.FlushDelay == 0 {
		return l.db.Flush()
	}
	if !l.flushing {
		l.flushing = true
		time.AfterFunc(l.opts.FlushDelay, l.flush)
	}
	return nil
}

// encode returns a value as the object that a store takes, which has a name.
func encode[T any](key string, value *T) (*object.Object, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	name, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	return object.Parse(append(fmt.Appendf(nil, `{"metadata":{"name":%s},`, name), raw[1:]...))
}

// flush makes the changes durable, unless the database was closed, which has done it.
func (l *Ledger[T]) flush() {
	l.mu.Lock()
	l.flushing = false
	l.mu.Unlock()
	if err := l.db.Flush(); err != nil && !errors.Is(err, store.ErrClosed) {
		l.opts.Log.Error(l.opts.Resource+" can't be remembered", "error", err)
	}
}
