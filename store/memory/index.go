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

// IndexKeys implements [store.View].
func (v *view) IndexKeys(index, value string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := v.entries(index, value, func(e store.IndexEntry) bool { return yield(e.Key, nil) })
		if err != nil {
			yield("", err)
		}
	}
}

// IndexEntries implements [store.View].
func (v *view) IndexEntries(index string) iter.Seq2[store.IndexEntry, error] {
	return func(yield func(store.IndexEntry, error) bool) {
		err := v.allEntries(index, func(e store.IndexEntry) bool { return yield(e, nil) })
		if err != nil {
			yield(store.IndexEntry{}, err)
		}
	}
}

// entries calls each for the entries of one value, until it returns false. An
// error means that there would have been more.
func (v *view) entries(index, value string, each func(store.IndexEntry) bool) error {
	x, err := v.usableIndex(index)
	if err != nil {
		return err
	}
	each = v.guard(each, &err)
	if index == store.NamespaceIndex {
		v.namespaceEntries(value, each)
		return err
	}
	x.entries.Ascend(store.IndexEntry{Value: value}, func(e store.IndexEntry) bool {
		return e.Value == value && each(e)
	})
	return err
}

// allEntries is entries for all values.
func (v *view) allEntries(index string, each func(store.IndexEntry) bool) error {
	x, err := v.usableIndex(index)
	if err != nil {
		return err
	}
	each = v.guard(each, &err)
	if index != store.NamespaceIndex {
		x.entries.Scan(each)
		return err
	}
	// Namespaces in the order of the keys are not in their own order: "a-b/x" comes
	// before "a/x". So they are gathered first; there are few of them.
	for _, ns := range v.namespaces() {
		if !v.namespaceEntries(ns, each) {
			return err
		}
	}
	return nil
}

// usableIndex returns the index of that name; for [store.NamespaceIndex], which
// is not stored, an empty one.
func (v *view) usableIndex(name string) (indexTree, error) {
	if err := v.usable(); err != nil {
		return indexTree{}, err
	}
	x, ok := v.index(name)
	if !ok && name != store.NamespaceIndex {
		return indexTree{}, v.c.wrap(fmt.Errorf("index %q: %w", name, store.ErrNoIndex))
	}
	return x, nil
}

// guard returns each, made to stop with an error in *err where it closes the view.
func (v *view) guard(each func(store.IndexEntry) bool, err *error) func(store.IndexEntry) bool {
	return func(e store.IndexEntry) bool {
		if !each(e) {
			return false
		}
		*err = v.usable()
		return *err == nil
	}
}

// namespaces returns the namespaces in order, with "" for the keys without any
// whether there are some or not. It leaps over each namespace's keys.
func (v *view) namespaces() []string {
	found := []string{""}
	it := v.objects.Iter()
	for ok := it.First(); ok; {
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

// namespaceEntries calls each for the keys of a namespace in order, and reports
// whether it always returned true.
func (v *view) namespaceEntries(ns string, each func(store.IndexEntry) bool) bool {
	it := v.objects.Iter()
	if ns != "" {
		prefix := ns + "/"
		for ok := it.Seek(prefix); ok && strings.HasPrefix(it.Key(), prefix); ok = it.Next() {
			// "a/b" is no namespace, though there may be a key "a/b/c".
			if store.KeyNamespace(it.Key()) != ns {
				return true
			}
			if !each(store.IndexEntry{Value: ns, Key: it.Key()}) {
				return false
			}
		}
		return true
	}
	for ok := it.First(); ok; {
		if other := store.KeyNamespace(it.Key()); other != "" {
			ok = it.Seek(afterNamespace(other))
			continue
		}
		if !each(store.IndexEntry{Key: it.Key()}) {
			return false
		}
		ok = it.Next()
	}
	return true
}

// afterNamespace is the least string behind all keys of a namespace: "0" follows
// "/".
func afterNamespace(ns string) string { return ns + "0" }
