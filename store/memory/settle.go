package memory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Where an object is in the order of keys, and an index's keys in theirs, matters to
// views only. So changes wait, and find their places many at a time: those that are
// neighbours together, and of a key that changed twice the newest only.

// mostUnsettled is how many changes wait at most: a reader who comes to them settles them
// within a millisecond or so.
const mostUnsettled = 1024

// unsettled is a change that waits.
type unsettled struct {
	key   string
	filed     // no object where the key is deleted
	order int // among those that wait
}

// move puts a key under a value of an index, or takes it out.
type move struct {
	index      int
	value, key string
	out        bool
}

// apply makes a change, which was checked, of a key that is filed as before says, as far
// as that is known. It returns what the key is filed as from then on. A change that moves
// nothing takes its place at once.
func (c *content) apply(ch store.Change, before filed) filed {
	f := filed{object: ch.Object}
	if ch.Object != nil {
		f.values = c.values(ch, before)
		if before.object != nil && f.values == before.values && c.swap(ch.Key, before.object, f) {
			return f
		}
	}
	c.unsettled = append(c.unsettled, unsettled{ch.Key, f, len(c.unsettled)})
	if len(c.unsettled) == mostUnsettled {
		c.settle()
	}
	return f
}

// swap puts f in the place of the object at key. It reports false where that object is
// not there, as it waits itself. To look through one array of pointers is faster than
// through keys that lie all over the memory.
func (c *content) swap(key string, before *object.Object, f filed) bool {
	if c.objects.count == 0 {
		return false
	}
	at := cursor[filed]{p: &c.objects, page: c.objects.pageOf(key)}
	page := c.objects.list[at.page]
	for i := range page.items {
		if page.items[i].object == before && page.keys[i] == key {
			at.item = i
			c.bytes += int64(f.object.Size()) - int64(before.Size())
			c.objects.set(at, f, c.owner)
			return true
		}
	}
	return false
}

// values returns those that a change's object is filed under; before's own where they are
// the same, as most updates change a status and leave every index as it is.
func (c *content) values(ch store.Change, before filed) values {
	b := c.encoding[:0]
	for _, x := range c.indexes {
		b = appendValues(b, x.Values(ch.Object))
	}
	c.encoding = b
	if string(b) == string(before.values) {
		return before.values
	}
	return values(b)
}

// settle gives the changes that wait their places.
func (c *content) settle() {
	if len(c.unsettled) == 0 {
		return
	}
	slices.SortFunc(c.unsettled, func(a, b unsettled) int {
		return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.order, b.order))
	})
	for i, u := range c.unsettled {
		if i+1 == len(c.unsettled) || c.unsettled[i+1].key != u.key {
			c.place(u.key, u.filed)
		}
	}
	clear(c.unsettled)
	c.unsettled = c.unsettled[:0]
	c.settleIndexes()
}

// place puts f at key, or deletes what is there where f has no object, and notes what
// that means to the indexes.
func (c *content) place(key string, f filed) {
	at, had := c.objects.find(key)
	var before filed
	if had {
		before = at.value()
		c.bytes -= int64(before.object.Size())
	}
	if before.values == f.values {
		f.values = before.values // one copy is enough
	} else {
		c.note(key, before.values, f.values)
	}
	switch {
	case f.object == nil && had:
		c.objects.delete(at, c.owner)
		return
	case f.object == nil:
		return
	case had:
		c.objects.set(at, f, c.owner)
	default:
		c.objects.insert(at, key, f, c.owner)
	}
	c.bytes += int64(f.object.Size())
}

// note takes note of the moves of a key that was filed under some values and now is under
// others.
func (c *content) note(key string, before, now values) {
	var some, others [4]string
	was, is := some[:0], others[:0]
	for i := range c.indexes {
		was, before = before.next(was[:0])
		is, now = now.next(is[:0])
		for _, v := range was {
			if !slices.Contains(is, v) {
				c.moves = append(c.moves, move{i, v, key, true})
			}
		}
		for _, v := range is {
			if !slices.Contains(was, v) {
				c.moves = append(c.moves, move{i, v, key, false})
			}
		}
	}
}

// settleIndexes makes the moves that were noted, those under one value together.
func (c *content) settleIndexes() {
	slices.SortFunc(c.moves, func(a, b move) int {
		return cmp.Or(cmp.Compare(a.index, b.index), strings.Compare(a.value, b.value), strings.Compare(a.key, b.key))
	})
	for from := 0; from < len(c.moves); {
		m, to := c.moves[from], from+1
		for to < len(c.moves) && c.moves[to].index == m.index && c.moves[to].value == m.value {
			to++
		}
		c.indexes[m.index].move(m.value, c.moves[from:to], c.owner)
		from = to
	}
	clear(c.moves)
	c.moves = c.moves[:0]
}

// move makes moves, which are in the order of their keys, under a value.
func (x indexTree) move(value string, moves []move, o *owner) {
	b := x.bucket(value, o)
	if b == nil {
		b = newBucket(moves[0].key, o) // nothing can be taken out
		x.values.Set(value, b)
		moves = moves[1:]
	}
	for _, m := range moves {
		at, found := b.find(m.key)
		switch {
		case m.out && found:
			b.delete(at, o)
		case !m.out && !found:
			b.insert(at, m.key, struct{}{}, o)
		}
	}
	if b.count == 0 {
		x.values.Delete(value)
	}
}
