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
	objects pages
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
	d := &content{objects: c.objects.copy(), bytes: c.bytes, indexes: slices.Clone(c.indexes), feed: c.feed.copy()}
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
// that each of them took the place of to old, nil for none. known are the objects that
// are there, as far as they are known by key.
func (c *content) apply(changes []store.Change, known map[string]*object.Object, old []*object.Object) []*object.Object {
	for _, ch := range changes {
		at, had := c.objects.findKnown(ch.Key, known[ch.Key])
		var before filed
		if had {
			before = at.value()
		}
		switch {
		case ch.Object != nil:
			c.set(at, ch, before)
		case had:
			c.delete(at, ch.Key, before)
		}
		old = append(old, before.object)
	}
	return old
}

// byKey returns the objects in a map.
func (c *content) byKey() map[string]*object.Object {
	m := make(map[string]*object.Object, c.objects.count)
	for key, f := range c.objects.all {
		m[key] = f.object
	}
	return m
}

// set puts a change's object in the place of before, at a place.
func (c *content) set(at cursor, ch store.Change, before filed) {
	f := filed{object: ch.Object}
	if len(c.indexes) > 0 {
		values := make([][]string, len(c.indexes))
		f.values = &values
	}
	for i, x := range c.indexes {
		was, values := before.under(i), x.Values(ch.Object)
		// Most updates change a status and leave every index as it is.
		if slices.Equal(was, values) {
			values = was
		} else {
			x.remove(ch.Key, was)
			x.add(ch.Key, values)
		}
		(*f.values)[i] = values
	}
	c.bytes += int64(ch.Object.Size())
	if before.object == nil {
		c.objects.insert(at, ch.Key, f)
		return
	}
	c.bytes -= int64(before.object.Size())
	c.objects.set(at, f)
}

// delete takes out what is at a place.
func (c *content) delete(at cursor, key string, before filed) {
	c.bytes -= int64(before.object.Size())
	for i, x := range c.indexes {
		x.remove(key, before.under(i))
	}
	c.objects.delete(at)
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
	var objects pages
	for key, f := range c.objects.all {
		var values [][]string
		for i, x := range next {
			if known[i] >= 0 {
				values = append(values, f.under(known[i]))
				continue
			}
			values = append(values, x.Values(f.object))
			x.add(key, values[i])
		}
		end, _ := objects.find(key)
		objects.insert(end, key, filed{f.object, &values})
	}
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
