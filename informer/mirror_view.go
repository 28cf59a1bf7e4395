package informer

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// damagedView is a view of a mirror that lacks corrupt records: it reports them as the durable store
// does. Of the indexes, only that by namespace has them.
type damagedView struct {
	store.View // in memory
	content    *mirrored
	keys       []string // of the corrupt records, in order
}

func newDamagedView(v store.View, c *mirrored) *damagedView {
	keys := slices.Sorted(maps.Keys(c.corrupt))
	return &damagedView{v, c, slices.DeleteFunc(keys, func(key string) bool {
		_, err := v.Header(key)
		return !errors.Is(err, store.ErrNotFound) // repaired since c was loaded
	})}
}

func (v *damagedView) Get(key string) (*object.Object, error) {
	o, err := v.View.Get(key)
	return o, v.missing(key, err)
}

func (v *damagedView) Header(key string) (store.Header, error) {
	h, err := v.View.Header(key)
	return h, v.missing(key, err)
}

func (v *damagedView) missing(key string, err error) error { return v.content.missing(key, err) }

func (v *damagedView) Objects(prefix, after string) iter.Seq2[*object.Object, error] {
	return withCorrupt(v, v.View.Objects(prefix, after), prefix, after, (*object.Object).Key)
}

func (v *damagedView) Records(prefix, after string) iter.Seq2[store.Record, error] {
	return withCorrupt(v, v.View.Records(prefix, after), prefix, after, func(r store.Record) string { return r.Key })
}

func (v *damagedView) Headers(prefix, after string) iter.Seq2[store.Header, error] {
	return withCorrupt(v, v.View.Headers(prefix, after), prefix, after, func(h store.Header) string { return h.Key })
}

// withCorrupt adds the errors of the corrupt records to an iteration in key order.
func withCorrupt[T any](v *damagedView, all iter.Seq2[T, error], prefix, after string, keyOf func(T) string) iter.Seq2[T, error] {
	keys := slices.DeleteFunc(slices.Clone(v.keys), func(key string) bool { return !strings.HasPrefix(key, prefix) || key <= after })
	return merged(all, keys,
		func(key string, item T) bool { return key < keyOf(item) },
		func(key string) (none T, err error) { return none, v.content.corrupt[key] })
}

func (v *damagedView) IndexKeys(index, value, after string) iter.Seq2[string, error] {
	all := v.View.IndexKeys(index, value, after)
	if index != store.NamespaceIndex {
		return all
	}
	keys := slices.DeleteFunc(slices.Clone(v.keys), func(key string) bool { return store.KeyNamespace(key) != value || key <= after })
	return merged(all, keys,
		func(key, next string) bool { return key < next },
		func(key string) (string, error) { return key, nil })
}

func (v *damagedView) IndexEntries(index, prefix string, after store.IndexEntry) iter.Seq2[store.IndexEntry, error] {
	all := v.View.IndexEntries(index, prefix, after)
	if index != store.NamespaceIndex {
		return all
	}
	var entries []store.IndexEntry
	for _, key := range v.keys {
		e := store.IndexEntry{Value: store.KeyNamespace(key), Key: key}
		if strings.HasPrefix(e.Value, prefix) && e.Compare(after) > 0 {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, store.IndexEntry.Compare)
	return merged(all, entries,
		func(e, next store.IndexEntry) bool { return e.Compare(next) < 0 },
		func(e store.IndexEntry) (store.IndexEntry, error) { return e, nil })
}

// merged adds items to an iteration, each as of makes it, before the first element that it comes
// before. An error of the iteration ends it.
func merged[T, E any](all iter.Seq2[T, error], more []E, before func(E, T) bool, of func(E) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		rest := more
		for item, err := range all {
			if err != nil {
				yield(item, err)
				return
			}
			for len(rest) > 0 && before(rest[0], item) {
				if !yield(of(rest[0])) {
					return
				}
				rest = rest[1:]
			}
			if !yield(item, nil) {
				return
			}
		}
		for _, e := range rest {
			if !yield(of(e)) {
				return
			}
		}
	}
}
