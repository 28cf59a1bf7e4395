package memory

import (
	"slices"
	"sort"
)

// pages is an ordered map by key, in pages of some hundred. Who goes through it goes
// along a few arrays. To copy it is to take another owner for what is changed from then
// on: the list of pages is copied once, and each page that is changed.
type pages[V any] struct {
	list  []entry[V]
	count int
	owner *owner // of list
}

// entry is a page with its least key.
type entry[V any] struct {
	first string
	*page[V]
}

// page is some neighbours. It is never empty.
type page[V any] struct {
	keys  []string
	items []V // parallel to keys
	owner *owner
	lent  bool // another page has the same keys
}

// owner tells who may change a thing in place. It has a size, so that no two have one
// address.
type owner struct{ _ byte }

// pageSize is how many keys a page has at most.
const pageSize = 128

// pageOf returns the position of the page that key is in, if it is there.
func (p *pages[V]) pageOf(key string) int {
	return max(0, sort.Search(len(p.list), func(i int) bool { return p.list[i].first > key })-1)
}

// find returns where key is, or would be.
func (p *pages[V]) find(key string) (c cursor[V], found bool) {
	c = cursor[V]{p: p, page: p.pageOf(key)}
	if c.page < len(p.list) {
		c.item, found = slices.BinarySearch(p.list[c.page].keys, key)
	}
	return c, found
}

// get returns what is at key.
func (p *pages[V]) get(key string) (v V, ok bool) {
	c, ok := p.find(key)
	if ok {
		v = c.value()
	}
	return v, ok
}

// set puts v in the place of what is at c.
func (p *pages[V]) set(c cursor[V], v V, o *owner) {
	if p.owner != o {
		p.list, p.owner = slices.Clone(p.list), o
	}
	g := p.list[c.page].page
	if g.owner != o {
		g = &page[V]{keys: g.keys, items: slices.Clone(g.items), owner: o, lent: true}
		p.list[c.page].page = g
	}
	g.items[c.item] = v
}

// cursor is a place in pages. It is good until they are changed.
type cursor[V any] struct {
	p          *pages[V]
	page, item int
}

// seek returns the place of the first key that is not less than key.
func (p *pages[V]) seek(key string) cursor[V] {
	c, _ := p.find(key)
	c.skip()
	return c
}

// valid says whether there is something at c, and not the end.
func (c *cursor[V]) valid() bool { return c.page < len(c.p.list) }

func (c *cursor[V]) key() string { return c.p.list[c.page].keys[c.item] }

func (c *cursor[V]) value() V { return c.p.list[c.page].items[c.item] }

// next goes to the key after.
func (c *cursor[V]) next() {
	c.item++
	c.skip()
}

// skip goes on to the next page where this one is at its end.
func (c *cursor[V]) skip() {
	if c.valid() && c.item == len(c.p.list[c.page].keys) {
		c.page, c.item = c.page+1, 0
	}
}

// all yields everything in order.
func (p *pages[V]) all(yield func(string, V) bool) {
	for _, g := range p.list {
		for i, key := range g.keys {
			if !yield(key, g.items[i]) {
				return
			}
		}
	}
}
