package memory

import (
	"slices"
	"sort"

	"github.com/snapcache/snapcache/object"
)

// pages is an ordered map of objects by key, in pages of some hundred. A list of
// all goes along a few arrays; a copy costs next to nothing, and then a page for
// each that is changed.
type pages struct {
	list  []entry
	count int

	// owner marks the pages that may be changed in place, mine says that list may be.
	owner *owner
	mine  bool
}

// entry is a page with its least key.
type entry struct {
	first string
	*page
}

// page is some neighbours. It is never empty.
type page struct {
	keys  []string
	items []filed // parallel to keys
	owner *owner
	lent  bool // another page has the same keys
}

// owner has a size, so that no two have one address.
type owner struct{ _ byte }

// pageSize is how many objects a page has at most. It is split in halves.
const pageSize = 256

// copy returns a map that can be changed without p changing. It must not run beside
// another method of p.
func (p *pages) copy() pages {
	p.owner, p.mine = nil, false
	return *p
}

// pageOf returns the position of the page that key is in, if it is there.
func (p *pages) pageOf(key string) int {
	return max(0, sort.Search(len(p.list), func(i int) bool { return p.list[i].first > key })-1)
}

// find returns where key is, or would be.
func (p *pages) find(key string) (c cursor, found bool) {
	c = cursor{p: p, page: p.pageOf(key)}
	if c.page < len(p.list) {
		c.item, found = slices.BinarySearch(p.list[c.page].keys, key)
	}
	return c, found
}

// get returns the object at key.
func (p *pages) get(key string) (filed, bool) {
	c, ok := p.find(key)
	if !ok {
		return filed{}, false
	}
	return c.value(), true
}

// findKnown is find for a key whose object is nearly always known. One array of
// pointers is looked through faster than keys are that lie all over the memory.
func (p *pages) findKnown(key string, known *object.Object) (c cursor, found bool) {
	if known != nil && len(p.list) > 0 {
		c = cursor{p: p, page: p.pageOf(key)}
		for i, f := range p.list[c.page].items {
			if f.object == known && p.list[c.page].keys[i] == key {
				c.item = i
				return c, true
			}
		}
	}
	return p.find(key)
}

// own returns the page at a position, to be changed.
func (p *pages) own(i int) *page {
	if p.owner == nil {
		p.owner = new(owner)
	}
	if !p.mine {
		p.list, p.mine = slices.Clone(p.list), true
	}
	old := p.list[i].page
	if old.owner != p.owner {
		items := make([]filed, len(old.items), cap(old.items))
		copy(items, old.items)
		p.list[i].page = &page{keys: old.keys, items: items, owner: p.owner, lent: true}
	}
	return p.list[i].page
}

// ownKeys is own for changes of the keys too.
func (p *pages) ownKeys(i int) *page {
	g := p.own(i)
	if g.lent {
		g.keys, g.lent = append(make([]string, 0, cap(g.items)), g.keys...), false
	}
	return g
}

// set puts f in the place of what find told, at c.
func (p *pages) set(c cursor, f filed) { p.own(c.page).items[c.item] = f }

// insert puts f at key, which find did not find, at c.
func (p *pages) insert(c cursor, key string, f filed) {
	p.count++
	if len(p.list) == 0 {
		p.list, p.mine = []entry{{key, &page{}}}, true
	}
	g := p.ownKeys(c.page)
	if len(g.keys) == pageSize {
		c, g = p.split(c, g)
	}
	g.keys = slices.Insert(g.keys, c.item, key)
	g.items = slices.Insert(g.items, c.item, f)
	p.list[c.page].first = g.keys[0]
}

// split makes room at c in the full page g. It returns where c is then.
func (p *pages) split(c cursor, g *page) (cursor, *page) {
	half := pageSize / 2
	if c.item == pageSize && c.page == len(p.list)-1 {
		half = pageSize // objects that come in order leave full pages behind
	}
	next := &page{
		keys:  append(make([]string, 0, pageSize), g.keys[half:]...),
		items: append(make([]filed, 0, pageSize), g.items[half:]...),
		owner: p.owner,
	}
	clear(g.keys[half:])
	clear(g.items[half:])
	g.keys, g.items = g.keys[:half], g.items[:half]
	e := entry{page: next}
	if half < pageSize {
		e.first = next.keys[0]
	}
	p.list = slices.Insert(p.list, c.page+1, e)
	if c.item < half {
		return c, g
	}
	return cursor{p, c.page + 1, c.item - half}, next
}

// delete takes out what is at c.
func (p *pages) delete(c cursor) {
	p.count--
	g := p.ownKeys(c.page)
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
type cursor struct {
	p          *pages
	page, item int
}

// seek returns the place of the first key that is not less than key.
func (p *pages) seek(key string) cursor {
	c, _ := p.find(key)
	c.skip()
	return c
}

// valid says whether there is something at c, and not the end.
func (c *cursor) valid() bool { return c.page < len(c.p.list) }

func (c *cursor) key() string { return c.p.list[c.page].keys[c.item] }

func (c *cursor) value() filed { return c.p.list[c.page].items[c.item] }

// next goes to the key after.
func (c *cursor) next() {
	c.item++
	c.skip()
}

// skip goes on to the next page where this one is at its end.
func (c *cursor) skip() {
	if c.valid() && c.item == len(c.p.list[c.page].keys) {
		c.page, c.item = c.page+1, 0
	}
}

// all yields everything in order.
func (p *pages) all(yield func(string, filed) bool) {
	for _, g := range p.list {
		for i, key := range g.keys {
			if !yield(key, g.items[i]) {
				return
			}
		}
	}
}
