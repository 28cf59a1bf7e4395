package memory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// content is the objects of a collection with everything derived from them. One
// that is published is never changed again; changes are made to a copy.
type content struct {
	objects btree.Map[string, *object.Object]
	indexes []indexTree // by name
	bytes   int64       // the sum of the objects' sizes
	feed    feed
}

// indexTree is an index with its entries, ordered by value, then key.
type indexTree struct {
	store.Index
	entries *btree.BTreeG[store.IndexEntry]
}

func newIndexTree(x store.Index) indexTree {
	// Only one goroutine writes a tree, and none reads it until it is published.
	return indexTree{x, btree.NewBTreeGOptions(entryBefore, btree.Options{NoLocks: true})}
}

func entryBefore(a, b store.IndexEntry) bool { return a.Compare(b) < 0 }

// copy returns a content that can be changed without c changing. It costs the
// same for any number of objects. It must not run beside another method of c: it
// marks c's nodes as shared.
func (c *content) copy() *content {
	d := &content{objects: *c.objects.Copy(), bytes: c.bytes, indexes: slices.Clone(c.indexes), feed: c.feed.copy()}
	for i := range d.indexes {
		d.indexes[i].entries = c.indexes[i].entries.Copy()
	}
	return d
}

// check returns why changes can't be made.
func check(changes []store.Change) error {
	for _, ch := range changes {
		if ch.Key == "" {
			return errEmptyKey
		}
	}
	return nil
}

// apply makes changes, which were checked, in their order and returns the object
// that each of them took the place of, nil for none.
func (c *content) apply(changes []store.Change) []*object.Object {
	old := make([]*object.Object, len(changes))
	for i, ch := range changes {
		if ch.Object == nil {
			old[i] = c.delete(ch.Key)
		} else {
			old[i] = c.set(ch.Key, ch.Object)
		}
	}
	return old
}

// byKey returns the objects in a map.
func (c *content) byKey() map[string]*object.Object {
	m := make(map[string]*object.Object, c.objects.Len())
	c.objects.Scan(func(key string, o *object.Object) bool {
		m[key] = o
		return true
	})
	return m
}

// set returns the object that was there, nil for none.
func (c *content) set(key string, o *object.Object) *object.Object {
	old, had := c.objects.Set(key, o)
	c.bytes += int64(o.Size())
	if had {
		c.bytes -= int64(old.Size())
	}
	for _, x := range c.indexes {
		values := x.Values(o)
		if had {
			before := x.Values(old)
			// Most updates change a status and leave every index as it is.
			if slices.Equal(before, values) {
				continue
			}
			x.remove(key, before)
		}
		x.add(key, values)
	}
	return old
}

// delete returns the object that was there, nil for none.
func (c *content) delete(key string) *object.Object {
	old, had := c.objects.Delete(key)
	if !had {
		return nil
	}
	c.bytes -= int64(old.Size())
	for _, x := range c.indexes {
		x.remove(key, x.Values(old))
	}
	return old
}

func (x indexTree) add(key string, values []string) {
	for _, v := range values {
		x.entries.Set(store.IndexEntry{Value: v, Key: key})
	}
}

func (x indexTree) remove(key string, values []string) {
	for _, v := range values {
		x.entries.Delete(store.IndexEntry{Value: v, Key: key})
	}
}

// reindex makes indexes the ones of c. Entries of those whose name and spec are
// known are kept, the others are built from the objects.
func (c *content) reindex(indexes []store.Index) {
	next := make([]indexTree, len(indexes))
	for i, x := range indexes {
		if have, ok := c.index(x.Name); ok && have.Spec == x.Spec {
			next[i] = indexTree{x, have.entries}
			continue
		}
		next[i] = newIndexTree(x)
		c.objects.Scan(func(key string, o *object.Object) bool {
			next[i].add(key, x.Values(o))
			return true
		})
	}
	c.indexes = next
}

// index returns the index of that name.
func (c *content) index(name string) (indexTree, bool) {
	i, ok := slices.BinarySearchFunc(c.indexes, name, func(x indexTree, name string) int {
		return strings.Compare(x.Name, name)
	})
	if !ok {
		return indexTree{}, false
	}
	return c.indexes[i], true
}

// sortIndexes returns indexes ordered by name, or an error where they can't be
// the indexes of one collection.
func sortIndexes(indexes []store.Index) ([]store.Index, error) {
	indexes = slices.Clone(indexes)
	slices.SortFunc(indexes, func(a, b store.Index) int { return strings.Compare(a.Name, b.Name) })
	for i, x := range indexes {
		switch {
		case x.Name == "" || x.Func == nil:
			return nil, fmt.Errorf("index %q has no name or no function", x.Name)
		case x.Name == store.NamespaceIndex:
			return nil, fmt.Errorf("index %q: every collection has it already", x.Name)
		case i > 0 && x.Name == indexes[i-1].Name:
			return nil, fmt.Errorf("index %q is given twice", x.Name)
		}
	}
	return indexes, nil
}
