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

// pageSize is how many keys a page has at most. It is split in halves.
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

// own returns the page at a position, to be changed by o.
func (p *pages[V]) own(i int, o *owner) *page[V] {
	if p.owner != o {
		p.list, p.owner = slices.Clone(p.list), o
	}
	if old := p.list[i].page; old.owner != o {
		items := append(make([]V, 0, cap(old.items)), old.items...)
		p.list[i].page = &page[V]{keys: old.keys, items: items, owner: o, lent: true}
	}
	return p.list[i].page
}

// ownKeys is own for changes of the keys too.
func (p *pages[V]) ownKeys(i int, o *owner) *page[V] {
	g := p.own(i, o)
	if g.lent {
		g.keys, g.lent = append(make([]string, 0, cap(g.items)), g.keys...), false
	}
	return g
}

// set puts v in the place of what find found, at c.
func (p *pages[V]) set(c cursor[V], v V, o *owner) { p.own(c.page, o).items[c.item] = v }

// insert puts v at key, which find did not find, at c.
func (p *pages[V]) insert(c cursor[V], key string, v V, o *owner) {
	p.count++
	if len(p.list) == 0 {
		p.list, p.owner = []entry[V]{{key, &page[V]{owner: o}}}, o
	}
	g := p.ownKeys(c.page, o)
	if len(g.keys) == pageSize {
		c, g = p.split(c, g)
	}
	g.keys = slices.Insert(g.keys, c.item, key)
	g.items = slices.Insert(g.items, c.item, v)
	p.list[c.page].first = g.keys[0]
}

// split makes room at c in the full page g. It returns where c is then.
func (p *pages[V]) split(c cursor[V], g *page[V]) (cursor[V], *page[V]) {
	half := pageSize / 2
	if c.item == pageSize && c.page == len(p.list)-1 {
		half = pageSize // keys that come in order leave full pages behind
	}
	next := &page[V]{
		keys:  append(make([]string, 0, pageSize), g.keys[half:]...),
		items: append(make([]V, 0, pageSize), g.items[half:]...),
		owner: g.owner,
	}
	clear(g.keys[half:])
	clear(g.items[half:])
	g.keys, g.items = g.keys[:half], g.items[:half]
	e := entry[V]{page: next}
	if half < pageSize {
		e.first = next.keys[0]
	}
	p.list = slices.Insert(p.list, c.page+1, e)
	if c.item < half {
		return c, g
	}
	return cursor[V]{p, c.page + 1, c.item - half}, next
}

// delete takes out what is at c.
func (p *pages[V]) delete(c cursor[V], o *owner) {
	p.count--
	g := p.ownKeys(c.page, o)
	g.keys = slices.Delete(g.keys, c.item, c.item+1)
	g.items = slices.Delete(g.items, c.item, c.item+1)
	if len(g.keys) == 0 {
		p.list = slices.Delete(p.list, c.page, c.page+1)
		return
	}
	p.list[c.page].first = g.keys[0]
	if next := c.page + 1; next < len(p.list) && len(g.keys)+len(p.list[next].keys) <= pageSize/2 {
		g.keys = append(g.keys, p.list[next].keys...)
		g.items = append(g.items, p.list[next].items...)
		p.list = slices.Delete(p.list, next, next+1)
	}
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
