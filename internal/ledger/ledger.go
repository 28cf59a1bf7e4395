// Package ledger stores small values by key, such as remembered decisions and tokens, within limits
// that are shared fairly among the owners of the values: an owner that adds ever more displaces only
// its own.
package ledger

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// purgeInterval is the time after which expired values are deleted with the next change.
const purgeInterval = time.Hour

// Options describe the values of a Ledger.
type Options[T any] struct {
	Resource, Kind string // the names of the collection
	Max, MaxBytes  int64  // of the stored values

	// Owner returns the owner of a value, and its time: the earliest ones are deleted first.
	Owner func(v *T, now time.Time) (owner string, at time.Time)

	// Expired reports whether a value is of no use any more; nil if no clock deletes values.
	Expired func(v *T, now time.Time) bool

	// FlushDelay is how long a change may wait for others before it is durable; 0 if it is durable
	// when Update returns.
	FlushDelay time.Duration

	Log *slog.Logger
}

// Ledger is the values of one type in a store. It is safe for concurrent use.
type Ledger[T any] struct {
	opts       Options[T]
	db         store.DB
	collection store.Collection

	mu       sync.Mutex // held while the collection is written
	flushing bool       // a flush comes within FlushDelay
	purged   time.Time
}

// Open returns the values that are stored in db, which the caller closes.
func Open[T any](db store.DB, o Options[T]) (*Ledger[T], error) {
	c, err := db.Open(store.Info{ID: o.Resource, Group: "snapcache", Version: "v1", Resource: o.Resource, Kind: o.Kind})
	if err != nil {
		return nil, err
	}
	return &Ledger[T]{opts: o, db: db, collection: c}, nil
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
	return value, o.Into(value)
}

// Update replaces the value of a key by the result of next: nil deletes it, and was leaves it as it is.
// was is nil if there is no value, or it can't be read. After an error the change is not durable.
func (l *Ledger[T]) Update(key string, now time.Time, next func(was *T) *T) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, err := l.Get(key)
	missing := errors.Is(err, store.ErrNotFound)
	if err != nil {
		was = nil
	}
	value := next(was)
	if value == was && (value != nil || missing) {
		return nil
	}
	changes := []store.Change{{Key: key}}
	if value != nil {
		// A store takes objects, which have a name.
		raw, err := json.Marshal(value)
		if err == nil {
			changes[0].Object, err = object.Parse(fmt.Appendf(nil, `{"metadata":{"name":%q},%s`, key, raw[1:]))
		}
		if err == nil {
			changes, err = l.makeRoom(changes, now)
		}
		if err != nil {
			return err
		}
	}
	if err := l.collection.Apply(store.Batch{Changes: changes}); err != nil {
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

// flush makes the changes durable, unless the database was closed, which has done it.
func (l *Ledger[T]) flush() {
	l.mu.Lock()
	l.flushing = false
	l.mu.Unlock()
	if err := l.db.Flush(); err != nil && !errors.Is(err, store.ErrClosed) {
		l.opts.Log.Error(l.opts.Resource+" can't be remembered", "error", err)
	}
}

// entry is a stored value, as far as its deletion depends on it.
type entry struct {
	key, owner string
	at         time.Time
	bytes      int64
}

// makeRoom adds to the change of one key deletions of other values that have expired or can't be read
// and, if a limit is reached, of as many more as leave nine tenths. The error means that there is no room.
func (l *Ledger[T]) makeRoom(changes []store.Change, now time.Time) ([]store.Change, error) {
	state := l.collection.State()
	full := state.Count >= l.opts.Max || state.Bytes >= l.opts.MaxBytes
	if age := now.Sub(l.purged); !full && (l.opts.Expired == nil || age >= 0 && age < purgeInterval) {
		return changes, nil
	}
	l.purged = now
	stored, useless, err := l.entries(changes[0].Key, now)
	switch {
	case err != nil && full:
		return nil, fmt.Errorf("no room can be made: %w", err)
	case err != nil:
		return changes, nil
	}
	changes = append(changes, useless...)
	if full {
		slices.SortFunc(stored, func(a, b entry) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.key, b.key)) })
		left, weight := l.opts.Max*9/10, func(entry) int64 { return 1 }
		if state.Bytes >= l.opts.MaxBytes {
			left, weight = l.opts.MaxBytes*9/10, func(e entry) int64 { return e.bytes }
		}
		changes = reduce(changes, stored, left, weight)
	}
	return changes, nil
}

// entries returns all values but the one of a key, and deletions of the useless ones.
func (l *Ledger[T]) entries(but string, now time.Time) (stored []entry, useless []store.Change, err error) {
	v, err := l.collection.View()
	if err != nil {
		return nil, nil, err
	}
	defer v.Close()
	for o, err := range v.Objects("", "") {
		var value T
		var damage *store.CorruptionError
		switch {
		case errors.As(err, &damage) && damage.Key != "":
			useless = append(useless, store.Change{Key: damage.Key})
		case err != nil:
			return nil, nil, err
		case o.Key() == but:
		case o.Into(&value) != nil || l.opts.Expired != nil && l.opts.Expired(&value, now):
			useless = append(useless, store.Change{Key: o.Key()})
		default:
			owner, at := l.opts.Owner(&value, now)
			stored = append(stored, entry{o.Key(), owner, at, int64(len(o.Raw()))})
		}
	}
	return stored, useless, nil
}

// reduce adds deletions of the first entries of the owners with the most, until the weight of all is at
// most left.
func reduce(changes []store.Change, stored []entry, left int64, weight func(entry) int64) []store.Change {
	of, total := map[string]int64{}, int64(0)
	for _, e := range stored {
		of[e.owner] += weight(e)
		total += weight(e)
	}
	most := share(slices.Collect(maps.Values(of)), left)
	for _, e := range stored {
		if total > left && of[e.owner] > most {
			of[e.owner] -= weight(e)
			total -= weight(e)
			changes = append(changes, store.Change{Key: e.key})
		}
	}
	return changes
}

// share returns the most that each may have of a total, so that owners with less keep all.
func share(weights []int64, total int64) int64 {
	return int64(sort.Search(int(total), func(most int) bool {
		sum := int64(0)
		for _, n := range weights {
			sum += min(n, int64(most)+1)
		}
		return sum > total
	}))
}
