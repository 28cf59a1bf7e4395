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

	unsettled []unsettled // changes that are not in the fields above yet
	moves     []move      // room for those of a settling, empty in between
	encoding  []byte      // room for values
}

// filed is an object and the values that it is filed under: nobody asks an index
// function twice about one object.
type filed struct {
	object *object.Object
	values values
}

// indexTree is an index with the keys under each value, in order.
type indexTree struct {
	store.Index
	values *btree.Map[string, *bucket]
}

// bucket is the keys under one value. There is at least one.
type bucket = pages[struct{}]

// newBucket returns a bucket of one key. It comes with room for a few more: most values
// have no more.
func newBucket(key string, o *owner) *bucket {
	x := &struct {
		bucket
		list [1]entry[struct{}]
		page page[struct{}]
		keys [4]string
	}{}
	x.keys[0] = key
	x.page = page[struct{}]{keys: x.keys[:1], items: make([]struct{}, 1), owner: o}
	x.list[0] = entry[struct{}]{key, &x.page}
	x.bucket = bucket{list: x.list[:], count: 1, owner: o}
	return &x.bucket
}

func newIndexTree(x store.Index) indexTree {
	return indexTree{x, new(btree.Map[string, *bucket])}
}

func newContent() *content { return &content{feed: newFeed(history.Head{}), owner: new(owner)} }

// copy returns a content that can be changed without c changing. It costs the
// same for any number of objects. It must not run beside another method of c: it
// settles what is unsettled, and takes what c has out of its hands.
func (c *content) copy() *content {
	c.settle()
	d := *c
	c.owner, d.owner = new(owner), new(owner)
	d.feed, d.indexes = c.feed.copy(), slices.Clone(c.indexes)
	d.unsettled, d.moves, d.encoding = nil, nil, nil
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

// byKey settles what is unsettled, and returns the objects in a map.
func (c *content) byKey() map[string]filed {
	c.settle()
	m := make(map[string]filed, c.objects.count)
	for key, f := range c.objects.all {
		m[key] = f
	}
	return m
}

// bucket returns the keys under a value, to be changed by o; nil where there are none.
func (x indexTree) bucket(value string, o *owner) *bucket {
	b, ok := x.values.Get(value)
	if ok && b.owner != o {
		b = &bucket{list: slices.Clone(b.list), count: b.count, owner: o}
		x.values.Set(value, b)
	}
	return b
}

// reindex makes indexes the ones of c. Entries of those whose name and spec are
// known are kept, the others are built from the objects. It reports whether objects are
// filed otherwise now.
func (c *content) reindex(indexes []store.Index) bool {
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
	old := make([][]string, len(c.indexes))
	c.indexes = next
	if same {
		return false
	}
	var objects pages[filed]
	for key, f := range c.objects.all {
		rest := f.values
		for i := range old {
			old[i], rest = rest.next(old[i][:0])
		}
		c.encoding = c.encoding[:0]
		for i, x := range next {
			if known[i] >= 0 {
				c.encoding = appendValues(c.encoding, old[known[i]])
				continue
			}
			of := x.Values(f.object)
			c.encoding = appendValues(c.encoding, of)
			for _, v := range of {
				c.moves = append(c.moves, move{i, v, key, false})
			}
		}
		end, _ := objects.find(key)
		objects.insert(end, key, filed{f.object, values(c.encoding)}, c.owner)
	}
	c.objects = objects
	c.settleIndexes()
	return true
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
