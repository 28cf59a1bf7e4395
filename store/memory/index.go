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
		err := v.valueEntries(index, value, after, func(e store.IndexEntry) bool { return yield(e.Key, nil) })
		if err != nil {
			yield("", err)
		}
	}
}

// IndexEntries implements [store.View].
func (v *view) IndexEntries(index, prefix string, after store.IndexEntry) iter.Seq2[store.IndexEntry, error] {
	return func(yield func(store.IndexEntry, error) bool) {
		err := v.entries(index, prefix, after, func(e store.IndexEntry) bool { return yield(e, nil) })
		if err != nil {
			yield(store.IndexEntry{}, err)
		}
	}
}

// valueEntries calls each for the entries of one value whose keys come after the
// key after, until it returns false. An error means that there would have been more.
func (v *view) valueEntries(index, value, after string, each func(store.IndexEntry) bool) error {
	x, err := v.usableIndex(index)
	if err != nil {
		return err
	}
	each = v.guard(each, &err)
	if index == store.NamespaceIndex {
		v.namespaceEntries(value, after, each)
		return err
	}
	if b, ok := x.values.get(value); ok {
		bucketEntries(b.settled(), value, after, each)
	}
	return err
}

// bucketEntries calls each for the keys of a value that come after the key after, and
// reports whether it always returned true.
func bucketEntries(b *pages[*filed], value, after string, each func(store.IndexEntry) bool) bool {
	c := b.seek(after)
	if c.valid() && c.key() == after {
		c.next()
	}
	for ; c.valid(); c.page, c.item = c.page+1, 0 {
		for _, key := range b.list[c.page].keys[c.item:] {
			if !each(store.IndexEntry{Value: value, Key: key}) {
				return false
			}
		}
	}
	return true
}

// entries is valueEntries for all values that start with prefix.
func (v *view) entries(index, prefix string, after store.IndexEntry, each func(store.IndexEntry) bool) error {
	x, err := v.usableIndex(index)
	if err != nil {
		return err
	}
	each = v.guard(each, &err)
	if index != store.NamespaceIndex {
		for c := x.values.seek(max(prefix, after.Value)); c.valid() && strings.HasPrefix(c.key(), prefix); c.next() {
			key := ""
			if c.key() == after.Value {
				key = after.Key
			}
			if !bucketEntries(c.value().settled(), c.key(), key, each) {
				break
			}
		}
		return err
	}
	// Namespaces in the order of the keys are not in their own order: "a-b/x" comes
	// before "a/x". So they are gathered first; there are few of them.
	for _, ns := range v.namespaces() {
		if !strings.HasPrefix(ns, prefix) || ns < after.Value {
			continue
		}
		key := ""
		if ns == after.Value {
			key = after.Key
		}
		if !v.namespaceEntries(ns, key, each) {
			return err
		}
	}
	return nil
}

// usableIndex returns the index of that name; for [store.NamespaceIndex], which
// is not stored, nil.
func (v *view) usableIndex(name string) (*indexTree, error) {
	if err := v.usable(); err != nil {
		return nil, err
	}
	x, ok := v.index(name)
	if !ok && name != store.NamespaceIndex {
		return nil, v.c.wrap(fmt.Errorf("index %q: %w", name, store.ErrNoIndex))
	}
	return x, nil
}

// guard returns each, made to stop with an error in *err where it closes the view.
func (v *view) guard(each func(store.IndexEntry) bool, err *error) func(store.IndexEntry) bool {
	return func(e store.IndexEntry) bool {
		if !each(e) {
			return false
		}
		if v.closed {
			*err = v.usable()
		}
		return !v.closed
	}
}

// namespaces returns the namespaces in order, with "" for the keys without any
// whether there are some or not. It leaps over each namespace's keys.
func (v *view) namespaces() []string {
	found := []string{""}
	for c := v.objects.seek(""); c.valid(); {
		ns := store.KeyNamespace(c.key())
		if ns == "" {
			c.next()
			continue
		}
		found = append(found, ns)
		c = v.objects.seek(afterNamespace(ns))
	}
	slices.Sort(found)
	return found
}

// namespaceEntries calls each for the keys of a namespace that come after the key
// after, in order, and reports whether it always returned true.
func (v *view) namespaceEntries(ns, after string, each func(store.IndexEntry) bool) bool {
	if ns != "" {
		prefix := ns + "/"
		for c := v.objects.seek(max(prefix, after)); c.valid() && strings.HasPrefix(c.key(), prefix); c.next() {
			if c.key() == after {
				continue
			}
			// "a/b" is no namespace, though there may be a key "a/b/c".
			if store.KeyNamespace(c.key()) != ns {
				return true
			}
			if !each(store.IndexEntry{Value: ns, Key: c.key()}) {
				return false
			}
		}
		return true
	}
	for c := v.objects.seek(after); c.valid(); {
		if other := store.KeyNamespace(c.key()); other != "" {
			c = v.objects.seek(afterNamespace(other))
			continue
		}
		if c.key() != after && !each(store.IndexEntry{Key: c.key()}) {
			return false
		}
		c.next()
	}
	return true
}

// afterNamespace is the least string behind all keys of a namespace: "0" follows
// "/".
func afterNamespace(ns string) string { return ns + "0" }
