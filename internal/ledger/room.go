package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/snapcache/snapcache/store"
)

// entry is a stored value, as far as its deletion depends on it.
type entry struct {
	key, owner string
	at         time.Time
	bytes      int64
}

// makeRoom returns deletions of the values that have expired or can't be read and, if the limits are
// reached, of a tenth of the others. The value of key, which is about to be stored, is never among them.
// The error means that there is no room for it.
func (l *Ledger[T]) makeRoom(key string, now time.Time) ([]store.Change, error) {
	state := l.collection.State()
	full := state.Count >= l.opts.Max || l.opts.MaxBytes > 0 && state.Bytes >= l.opts.MaxBytes
	if age := now.Sub(l.purged); !full && (l.opts.Expired == nil || age >= 0 && age < purgeInterval) {
		return nil, nil
	}
	l.purged = now
	stored, out, err := l.entries(key, now)
	if err != nil && !full {
		return nil, nil //nolint:nilerr // there is room
	}
	if err != nil {
		return nil, fmt.Errorf("no room can be made: %w", err)
	}
	if full {
		out = append(out, l.excess(stored)...)
	}
	return out, nil
}

// entries returns all values but the one of key, without those that are to be deleted in any case.
func (l *Ledger[T]) entries(key string, now time.Time) (stored []entry, out []store.Change, err error) {
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
			out = append(out, store.Change{Key: damage.Key})
		case err != nil:
			return nil, nil, err
		case o.Key() == key:
		case o.Into(&value) != nil || l.opts.Expired != nil && l.opts.Expired(&value, now):
			out = append(out, store.Change{Key: o.Key()})
		default:
			owner, at := l.opts.Owner(&value, now)
			stored = append(stored, entry{o.Key(), owner, at, int64(len(o.Raw()))})
		}
	}
	return stored, out, nil
}

// excess returns deletions that leave nine tenths of the limits.
func (l *Ledger[T]) excess(stored []entry) []store.Change {
	slices.SortFunc(stored, func(a, b entry) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.key, b.key)) })
	stored, out := reduce(stored, l.opts.Max*9/10, func(entry) int64 { return 1 })
	if l.opts.MaxBytes > 0 {
		_, more := reduce(stored, l.opts.MaxBytes*9/10, func(e entry) int64 { return e.bytes })
		out = append(out, more...)
	}
	return out
}

// reduce deletes the first entries of the owners with the most, until the weight of all is at most left.
func reduce(stored []entry, left int64, weight func(entry) int64) (kept []entry, out []store.Change) {
	of, total := map[string]int64{}, int64(0)
	for _, e := range stored {
		of[e.owner] += weight(e)
		total += weight(e)
	}
	most := share(slices.Collect(maps.Values(of)), left)
	for _, e := range stored {
		if total <= left || of[e.owner] <= most {
			kept = append(kept, e)
			continue
		}
		of[e.owner] -= weight(e)
		total -= weight(e)
		out = append(out, store.Change{Key: e.key})
	}
	return kept, out
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
