package memory

import (
	"fmt"
	"iter"
	"slices"
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
		if err := v.filed(index, value, after, func(key string, _ int32) bool { return yield(key, nil) }); err != nil {
			yield("", err)
		}
	}
}

// IndexEntries implements [store.View].
func (v *view) IndexEntries(index, prefix string, after store.IndexEntry) iter.Seq2[store.IndexEntry, error] {
	return func(yield func(store.IndexEntry, error) bool) {
		err := v.entries(index, prefix, after, func(e indexEntry) bool { return yield(e.IndexEntry, nil) })
		if err != nil {
			yield(store.IndexEntry{}, err)
		}
	}
}

// filed calls each for the keys under one value that come after the key after, until it returns
// false. An error means that the iteration is not complete.
func (v *view) filed(index, value, after string, each func(key string, pos int32) bool) error {
	from := store.IndexEntry{Value: value, Key: after}
	one := func(e indexEntry) bool { return e.Value == value && each(e.Key, e.pos) }
	if index != store.NamespaceIndex {
		return v.entries(index, value, from, one)
	}
	return v.guard(from, one, func(each func(indexEntry) bool) { v.ofNamespace(value, after, each) })
}

// entries calls each for the entries whose values start with prefix and that come after the entry
// after, until it returns false. An error means that the iteration is not complete.
func (v *view) entries(name, prefix string, after store.IndexEntry, each func(indexEntry) bool) error {
	if name == store.NamespaceIndex {
		return v.guard(after, each, func(each func(indexEntry) bool) { v.byNamespace(prefix, after, each) })
	}
	x, ok := v.index(name)
	if !ok && !v.closed {
		return v.c.wrap(fmt.Errorf("index %q: %w", name, store.ErrNoIndex))
	}
	from := after
	if prefix > after.Value {
		from = store.IndexEntry{Value: prefix}
	}
	return v.guard(after, each, func(each func(indexEntry) bool) {
		x.entries.Ascend(indexEntry{IndexEntry: from}, func(e indexEntry) bool { return strings.HasPrefix(e.Value, prefix) && each(e) })
	})
}

// guard calls walk, and passes its entries to each except the entry after. It returns an error if
// the view is closed, or each closes it.
func (v *view) guard(after store.IndexEntry, each func(indexEntry) bool, walk func(each func(indexEntry) bool)) error {
	err := v.usable()
	if err == nil {
		walk(func(e indexEntry) bool {
			if e.IndexEntry != after && !each(e) {
				return false
			}
			err = v.usable()
			return err == nil
		})
	}
	return err
}

// byNamespace calls each for the entries of the namespace index, which is not stored but derived
// from the order of keys.
func (v *view) byNamespace(prefix string, after store.IndexEntry, each func(indexEntry) bool) {
	// Key order is not the order of namespaces: "a-b/x" comes before "a/x". So the namespaces
	// are collected first; there are few of them.
	for _, ns := range v.namespaces(prefix) {
		from := ""
		if ns == after.Value {
			from = after.Key
		}
		if ns >= after.Value && !v.ofNamespace(ns, from, each) {
			return
		}
	}
}

// namespaces returns the namespaces with a prefix in order, including "" for keys without a
// namespace even if there are none. It skips over the keys of each namespace.
func (v *view) namespaces(prefix string) (found []string) {
	if prefix == "" {
		found = append(found, "")
	}
	it := v.keys.Iter()
	for ok := it.Seek(prefix); ok && strings.HasPrefix(it.Key(), prefix); {
		ns := store.KeyNamespace(it.Key())
		if ns == "" {
			ok = it.Next()
			continue
		}
		found = append(found, ns)
		ok = it.Seek(afterNamespace(ns))
	}
	slices.Sort(found)
	return found
}

// ofNamespace calls each for the keys of a namespace, starting at from, until each returns false.
// It reports whether each always returned true.
func (v *view) ofNamespace(ns, from string, each func(indexEntry) bool) bool {
	prefix := ""
	if ns != "" {
		prefix = ns + "/"
	}
	it := v.keys.Iter()
	for ok := it.Seek(max(prefix, from)); ok && strings.HasPrefix(it.Key(), prefix); {
		// "a/b" is no namespace, though there may be a key "a/b/c".
		if other := store.KeyNamespace(it.Key()); other != ns {
			ok = it.Seek(afterNamespace(other))
			continue
		}
		if !each(indexEntry{store.IndexEntry{Value: ns, Key: it.Key()}, it.Value()}) {
			return false
		}
		ok = it.Next()
	}
	return true
}

// afterNamespace returns the least string after all keys of a namespace: "0" follows "/".
func afterNamespace(ns string) string { return ns + "0" }
