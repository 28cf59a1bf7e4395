package memory

import (
	"slices"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Where an object is in the order of keys, and an index's keys in theirs, matters to
// views only. So keys that come and go wait, and find their places many at a time: those
// that are neighbours together.

// How many keys wait at most: of a large collection a quarter of what is stored, as the more
// find their places together the less each costs, within bounds. A reader who comes to them
// settles them: that takes him no more than some milliseconds.
const (
	fewUnsettled  = 1 << 13
	mostUnsettled = 1 << 14
)

// filed returns what a change's key is filed as after it.
func (c *content) filed(ch store.Change) filed {
	if ch.Object == nil {
		return filed{key: ch.Key}
	}
	c.strange = c.strange || !isKey(ch.Key, ch.Object)
	return filed{key: ch.Key, object: ch.Object, values: c.values(ch.Object), size: ch.Object.Size()}
}

// isKey reports whether an object is the one of a key, as all are but for who tries.
func isKey(key string, o *object.Object) bool {
	ns, name := o.GetNamespace(), o.GetName()
	if ns == "" {
		return key == name
	}
	return len(key) == len(ns)+1+len(name) && key[:len(ns)] == ns && key[len(ns)] == '/' && key[len(ns)+1:] == name
}

// values returns those that an object is filed under.
func (c *content) values(o *object.Object) values {
	b := c.encoding[:0]
	for _, x := range c.indexes {
		b = appendValues(b, x.Values(o))
	}
	c.encoding = b
	return c.shared.of(b)
}

// apply makes a change. An object that takes the place of another is put there at once.
func (c *content) apply(r *refiling) {
	before, now := &r.was, &r.is
	if before.object == nil && now.object == nil {
		return
	}
	if before.values != now.values {
		c.refile(r)
	}
	c.bytes += int64(now.size - before.size)
	// What is deleted leaves nothing behind: an object that is found is the newest at its key.
	// Its place stays until all settle, as many an object is soon back.
	swapped := (before.object != nil || r.grave) && c.swap(r)
	if r.stays && !r.grave {
		r.grave = true
		c.graves = append(c.graves, r.filed)
	}
	if !swapped || now.object == nil && !r.stays {
		c.unsettled = append(c.unsettled, edit[*object.Object]{key: now.key, value: now.object, gone: now.object == nil})
	}
	if len(c.unsettled)+len(c.graves) >= min(max(fewUnsettled, c.objects.count/4), mostUnsettled) {
		c.settle()
	}
}

// swap puts an object in the place of another, or of one that was deleted. It reports false
// where that is not there, as it waits itself. To look through one array of pointers is faster
// than through keys that lie all over the memory; they are asked only where an object may be at
// two of them.
func (c *content) swap(r *refiling) bool {
	f, before, now := r.filed, r.was.object, r.is.object
	is := func(g *page[*object.Object], i int) bool {
		return g.items[i] == before && (before != nil && !c.strange || g.keys[i] == f.key)
	}
	list, at := c.objects.list, cursor[*object.Object]{p: &c.objects, page: int(f.page), item: int(f.item)}
	if at.page >= len(list) || at.item >= len(list[at.page].items) || !is(list[at.page].page, at.item) {
		if len(list) == 0 {
			return false
		}
		at.page, at.item = c.objects.pageOf(f.key), 0
		g := list[at.page].page
		for at.item < len(g.items) && !is(g, at.item) {
			at.item++
		}
		if at.item == len(g.items) {
			return false
		}
		f.page, f.item = int32(at.page), int32(at.item)
	}
	c.objects.set(at, now, c.owner)
	return true
}

// refile makes what was filed under some values be under others.
func (c *content) refile(r *refiling) {
	var some, others [4]string
	was, is := some[:0], others[:0]
	before, now := r.was.values, r.is.values
	for i := range c.indexes {
		was, before = before.next(was[:0])
		is, now = now.next(is[:0])
		for _, v := range was {
			if !slices.Contains(is, v) {
				c.indexes[i].move(v, r.filed, true, c.owner)
			}
		}
		for _, v := range is {
			if !slices.Contains(was, v) {
				c.indexes[i].move(v, r.filed, false, c.owner)
			}
		}
	}
}

// settle gives the keys that wait their places, and takes those of what was deleted.
func (c *content) settle() {
	for _, f := range c.graves {
		if f.grave = false; f.object == nil {
			c.unsettled = append(c.unsettled, edit[*object.Object]{key: f.key, gone: true})
			c.dead = append(c.dead, f)
		}
	}
	clear(c.graves)
	c.graves = c.graves[:0]
	c.objects.merge(c.unsettled, c.owner)
	clear(c.unsettled)
	c.unsettled = c.unsettled[:0]
}
