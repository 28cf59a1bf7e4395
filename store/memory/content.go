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
	objects pages[filed]
	indexes []indexTree // by name
	bytes   int64       // the sum of the objects' sizes
	feed    feed
	owner   *owner // of what belongs to no other content
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

// indexTree is an index with the keys under each value, in order.
type indexTree struct {
	store.Index
	values *btree.Map[string, *bucket]
}

// bucket is the keys under one value. There is at least one.
type bucket = pages[struct{}]

func newIndexTree(x store.Index) indexTree {
	return indexTree{x, new(btree.Map[string, *bucket])}
}

func newContent() *content { return &content{feed: newFeed(history.Head{}), owner: new(owner)} }

// copy returns a content that can be changed without c changing. It costs the
// same for any number of objects. It must not run beside another method of c: it
// takes what c has out of its hands.
func (c *content) copy() *content {
	d := *c
	c.owner, d.owner = new(owner), new(owner)
	d.feed, d.indexes = c.feed.copy(), slices.Clone(c.indexes)
	for i := range d.indexes {
		d.indexes[i].values = c.indexes[i].values.Copy()
	}
	return &d
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
		at, had := c.find(ch.Key, known[ch.Key])
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

// find returns where key is, or would be. Where its object is known it looks through
// one array of pointers, which is faster than through keys that lie all over the memory.
func (c *content) find(key string, known *object.Object) (at cursor[filed], found bool) {
	if known == nil || c.objects.count == 0 {
		return c.objects.find(key)
	}
	at = cursor[filed]{p: &c.objects, page: c.objects.pageOf(key)}
	for i, f := range c.objects.list[at.page].items {
		if f.object == known && c.objects.list[at.page].keys[i] == key {
			at.item = i
			return at, true
		}
	}
	return c.objects.find(key) // an earlier change of the batch was of this key too
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
func (c *content) set(at cursor[filed], ch store.Change, before filed) {
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
			x.remove(ch.Key, was, c.owner)
			x.add(ch.Key, values, c.owner)
		}
		(*f.values)[i] = values
	}
	c.bytes += int64(ch.Object.Size())
	if before.object == nil {
		c.objects.insert(at, ch.Key, f, c.owner)
		return
	}
	c.bytes -= int64(before.object.Size())
	c.objects.set(at, f, c.owner)
}

// delete takes out what is at a place.
func (c *content) delete(at cursor[filed], key string, before filed) {
	c.bytes -= int64(before.object.Size())
	for i, x := range c.indexes {
		x.remove(key, before.under(i), c.owner)
	}
	c.objects.delete(at, c.owner)
}

func (x indexTree) add(key string, values []string, o *owner) {
	for _, v := range values {
		b, ok := x.bucket(v, o)
		if !ok {
			x.values.Set(v, b)
		}
		if at, found := b.find(key); !found {
			b.insert(at, key, struct{}{}, o)
		}
	}
}

func (x indexTree) remove(key string, values []string, o *owner) {
	for _, v := range values {
		b, _ := x.bucket(v, o)
		if at, found := b.find(key); found {
			b.delete(at, o)
		}
		if b.count == 0 {
			x.values.Delete(v)
		}
	}
}

// bucket returns the keys under a value, to be changed by o. ok is false where there
// are none.
func (x indexTree) bucket(value string, o *owner) (b *bucket, ok bool) {
	b, ok = x.values.Get(value)
	switch {
	case !ok:
		b = &bucket{owner: o}
	case b.owner != o:
		b = &bucket{list: slices.Clone(b.list), count: b.count, owner: o}
		x.values.Set(value, b)
	}
	return b, ok
}

// reindex makes indexes the ones of c. Entries of those whose name and spec are
// known are kept, the others are built from the objects.
func (c *content) reindex(indexes []store.Index) {
	next, known := make([]indexTree, len(indexes)), make([]int, len(indexes))
	same := len(indexes) == len(c.indexes)
	for i, x := range indexes {
		if known[i] = c.indexAt(x.Name, x.Spec); known[i] >= 0 {
			next[i] = indexTree{x, c.indexes[known[i]].values}
		} else {
			next[i] = newIndexTree(x)
		}
		same = same && known[i] == i
	}
	c.indexes = next
	if same {
		return
	}
	var objects pages[filed]
	for key, f := range c.objects.all {
		var values [][]string
		for i, x := range next {
			if known[i] >= 0 {
				values = append(values, f.under(known[i]))
				continue
			}
			values = append(values, x.Values(f.object))
			x.add(key, values[i], c.owner)
		}
		end, _ := objects.find(key)
		objects.insert(end, key, filed{f.object, &values}, c.owner)
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
