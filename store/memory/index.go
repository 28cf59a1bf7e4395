package memory

import (
	"fmt"
	"iter"
	"strings"

	"github.com/snapcache/snapcache/store"
)

// Indexes implements [store.View].
func (v *view) Indexes() []string {
	names := make([]string, len(v.indexes))
	for i, x := range v.indexes {
		names[i] = x.Name
	}
	return names
}

// Building implements [store.View]. An index is complete when Open returns.
func (v *view) Building() []string { return nil }

// IndexKeys implements [store.View].
func (v *view) IndexKeys(index, value, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := v.ascend(index, value, store.IndexEntry{Value: value, Key: after}, func(e indexEntry) bool {
			return e.Value == value && yield(e.Key, nil)
		})
		if err != nil {
			yield("", err)
		}
	}
}

// IndexEntries implements [store.View].
func (v *view) IndexEntries(index, prefix string, after store.IndexEntry) iter.Seq2[store.IndexEntry, error] {
	return func(yield func(store.IndexEntry, error) bool) {
		err := v.ascend(index, prefix, after, func(e indexEntry) bool { return yield(e.IndexEntry, nil) })
		if err != nil {
			yield(store.IndexEntry{}, err)
		}
	}
}

// ascend calls each for the entries whose values start with prefix and that come after the entry
// after, until it returns false. An error means that the iteration is not complete: the view is
// closed, or each closed it.
func (v *view) ascend(name, prefix string, after store.IndexEntry, each func(indexEntry) bool) error {
	err := v.usable()
	if err != nil {
		return err
	}
	entries, ok := v.index(name)
	if !ok {
		return v.c.wrap(fmt.Errorf("index %q: %w", name, store.ErrNoIndex))
	}
	from := after
	if prefix > after.Value {
		from = store.IndexEntry{Value: prefix}
	}
	entries.Ascend(indexEntry{IndexEntry: from}, func(e indexEntry) bool {
		if e.IndexEntry == after {
			return true
		}
		if !strings.HasPrefix(e.Value, prefix) || !each(e) {
			return false
		}
		err = v.usable()
		return err == nil
	})
	return err
}
