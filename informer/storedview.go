package informer

import (
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/store"
)

// storedView is a view of a collection that is not open. The stored indexes may be of another indexer,
// so it reads by indexes from all objects.
type storedView struct {
	store.View
	indexes []store.Index
	failed  func(error)
}

func (v storedView) IndexKeys(index, value, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for e, err := range v.IndexEntries(index, value, store.IndexEntry{Value: value, Key: after}) {
			if (err != nil || e.Value == value) && !yield(e.Key, err) {
				return
			}
		}
	}
}

func (v storedView) IndexEntries(index, prefix string, after store.IndexEntry) iter.Seq2[store.IndexEntry, error] {
	i := slices.IndexFunc(v.indexes, func(x store.Index) bool { return x.Name == index })
	if i < 0 { // the one of the namespaces, which every collection has
		return v.View.IndexEntries(index, prefix, after)
	}
	return func(yield func(store.IndexEntry, error) bool) {
		var all []store.IndexEntry
		for o, err := range v.Objects("", "") {
			switch {
			case errors.As(err, new(*store.CorruptionError)):
				v.failed(err)
				continue
			case err != nil:
				yield(store.IndexEntry{}, err)
				return
			}
			for _, value := range v.indexes[i].Values(o) {
				if e := (store.IndexEntry{Value: value, Key: o.Key()}); strings.HasPrefix(value, prefix) && e.Compare(after) > 0 {
					all = append(all, e)
				}
			}
		}
		slices.SortFunc(all, store.IndexEntry.Compare)
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}
