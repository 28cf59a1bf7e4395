package memory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/internal/history"
)

// content is the objects of a collection with everything derived from them. One
// that is published is never changed again; changes are made to a copy.
type content struct {
	objects pages[*object.Object]
	indexes []indexTree // by name
	bytes   int64       // the sum of the objects' sizes
	feed    feed
	owner   *owner // of what belongs to no other content

	unsettled []edit[*object.Object] // keys that are not as they should be in objects yet
	graves    []*filed               // what was deleted; some is back
	dead      []*filed               // what has no place any more; some is back
	encoding  []byte                 // room for values
	shared    *sharedValues
	strange   bool // an object was stored under a key that is not its own
}

// filed is an object and the values that it is filed under: nobody asks an index
// function twice about one object. There is one for a key for as long as there is an object, which
// the indexes point to as well. Its key is the very string that the pages have, which two looks
// find equal without reading it.
type filed struct {
	key    string
	object *object.Object
	values values
	size   int // of the object: not to look at one that goes

	page, item int32 // where it was found last: it may be elsewhere by now
	grave      bool  // in graves
}

// set files what is.
func (f *filed) set(is *filed) { f.object, f.values, f.size = is.object, is.values, is.size }

// refiling is a change of what is filed at a key.
type refiling struct {
	*filed // nil where nothing is or was there
	was    filed
	is     filed
	stays  bool // filed, with nothing in it, until it is swept out
}

// begin sets what was filed, and makes a place for what will be where there is none.
func (r *refiling) begin() {
	switch {
	case r.filed != nil:
		r.was, r.is.key = *r.filed, r.key
	case r.is.object != nil:
		r.filed = &filed{key: r.is.key}
	}
}

func newContent() *content {
	return &content{feed: newFeed(history.Head{}), owner: new(owner), shared: new(sharedValues)}
}

// snapshot returns what c is now, for readers. It costs the same for any number of
// objects, but for what is unsettled. It must not run beside another method of c: it
// settles, and takes what c has out of its hands.
func (c *content) snapshot() *content {
	c.settle()
	d := &content{objects: c.objects, indexes: slices.Clone(c.indexes), bytes: c.bytes, feed: c.feed.copy(), owner: new(owner)}
	for i := range d.indexes {
		c.indexes[i].settle(c.owner)
		d.indexes[i] = indexTree{Index: c.indexes[i].Index, values: c.indexes[i].values}
	}
	c.owner = new(owner)
	return d
}

// copy is snapshot for a writer.
func (c *content) copy() *content {
	d := c.snapshot()
	d.shared, d.strange = new(sharedValues), c.strange
	for i, x := range c.indexes {
		d.indexes[i].newest = maps.Clone(x.newest)
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

// reindex makes indexes the ones of c. Entries of those whose name and spec are
// known are kept, the others are built from the objects, which were filed as byKey says and
// are filed anew.
func (c *content) reindex(indexes []store.Index, byKey map[string]*filed) {
	next, known := make([]indexTree, len(indexes)), make([]int, len(indexes))
	same := len(indexes) == len(c.indexes)
	for i, x := range indexes {
		if known[i] = c.indexAt(x.Name, x.Spec); known[i] >= 0 {
			next[i] = c.indexes[known[i]]
			next[i].Index = x
		} else {
			next[i] = newIndexTree(x)
		}
		same = same && known[i] == i
	}
	old := make([][]string, len(c.indexes))
	c.indexes = next
	if same {
		return
	}
	for _, f := range byKey {
		rest := f.values
		for i := range old {
			old[i], rest = rest.next(old[i][:0])
		}
		c.encoding = c.encoding[:0]
		for i, x := range next {
			if known[i] >= 0 {
				c.encoding = appendValues(c.encoding, old[known[i]])
			} else {
				c.encoding = appendValues(c.encoding, x.Values(f.object))
			}
		}
		f.values = c.shared.of(c.encoding)
		rest = f.values
		for i := range next {
			var of []string
			if of, rest = rest.next(nil); known[i] < 0 {
				for _, v := range of {
					next[i].move(v, f, false, c.owner)
				}
			}
		}
	}
}

// indexAt returns the position of the index of that name and spec, -1 for none.
func (c *content) indexAt(name, spec string) int {
	return slices.IndexFunc(c.indexes, func(x indexTree) bool { return x.Name == name && x.Spec == spec })
}

// index returns the index of that name.
func (c *content) index(name string) (*indexTree, bool) {
	i, ok := slices.BinarySearchFunc(c.indexes, name, func(x indexTree, name string) int {
		return strings.Compare(x.Name, name)
	})
	if !ok {
		return nil, false
	}
	return &c.indexes[i], true
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
