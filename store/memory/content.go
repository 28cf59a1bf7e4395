package memory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/internal/history"
)

// content is the objects of a collection with everything derived from them. One
// that is published is never changed again; changes are made to a copy.
type content struct {
	objects btree.Map[string, filed]
	indexes []indexTree // by name
	bytes   int64       // the sum of the objects' sizes
	feed    feed
}

// filed is an object and the values that it is filed under: nobody asks an index
// function twice about one object.
type filed struct {
	object *object.Object
	values *[][]string // for each of the content's indexes; nil where it has none
}

// under returns the values for the index at a position.
func (f filed) under(i int) []string {
	if f.values == nil {
		return nil
	}
	return (*f.values)[i]
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

func entryBefore(a, b store.IndexEntry) bool {
	if a.Value == b.Value {
		return a.Key < b.Key
	}
	return a.Value < b.Value
}

func newContent() *content { return &content{feed: newFeed(history.Head{})} }

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

// apply makes changes, which were checked, in their order. It appends the object
// that each of them took the place of to old, nil for none.
func (c *content) apply(changes []store.Change, old []*object.Object) []*object.Object {
	for _, ch := range changes {
		if ch.Object == nil {
			old = append(old, c.delete(ch.Key))
		} else {
			old = append(old, c.set(ch.Key, ch.Object))
		}
	}
	return old
}

// byKey returns the objects in a map.
func (c *content) byKey() map[string]*object.Object {
	m := make(map[string]*object.Object, c.objects.Len())
	c.objects.Scan(func(key string, f filed) bool {
		m[key] = f.object
		return true
	})
	return m
}

// set returns the object that was there, nil for none.
func (c *content) set(key string, o *object.Object) *object.Object {
	f := filed{object: o}
	if len(c.indexes) > 0 {
		values := make([][]string, len(c.indexes))
		for i, x := range c.indexes {
			values[i] = x.Values(o)
		}
		f.values = &values
	}
	old, had := c.objects.Set(key, f)
	c.bytes += int64(o.Size())
	if had {
		c.bytes -= int64(old.object.Size())
	}
	for i, x := range c.indexes {
		values, before := &(*f.values)[i], old.under(i)
		// Most updates change a status and leave every index as it is.
		if had && slices.Equal(before, *values) {
			*values = before
			continue
		}
		x.remove(key, before)
		x.add(key, *values)
	}
	return old.object
}

// delete returns the object that was there, nil for none.
func (c *content) delete(key string) *object.Object {
	old, had := c.objects.Delete(key)
	if !had {
		return nil
	}
	c.bytes -= int64(old.object.Size())
	for i, x := range c.indexes {
		x.remove(key, old.under(i))
	}
	return old.object
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
	next, known := make([]indexTree, len(indexes)), make([]int, len(indexes))
	same := len(indexes) == len(c.indexes)
	for i, x := range indexes {
		if known[i] = c.indexAt(x.Name, x.Spec); known[i] >= 0 {
			next[i] = indexTree{x, c.indexes[known[i]].entries}
		} else {
			next[i] = newIndexTree(x)
		}
		same = same && known[i] == i
	}
	c.indexes = next
	if same {
		return
	}
	var objects btree.Map[string, filed]
	c.objects.Scan(func(key string, f filed) bool {
		var values [][]string
		for i, x := range next {
			if known[i] >= 0 {
				values = append(values, f.under(known[i]))
				continue
			}
			values = append(values, x.Values(f.object))
			x.add(key, values[i])
		}
		objects.Load(key, filed{f.object, &values})
		return true
	})
	c.objects = objects
}

// indexAt returns the position of the index of that name and spec, -1 for none.
func (c *content) indexAt(name, spec string) int {
	return slices.IndexFunc(c.indexes, func(x indexTree) bool { return x.Name == name && x.Spec == spec })
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
