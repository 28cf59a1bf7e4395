package memory

import (
	"errors"
	"slices"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// content is the newest state of a collection, or a draft of the next one.
type content struct {
	snapshot // its trees may be behind, see changed

	records []*record // in no order
	values  list      // of each record, see [Collection.Values]
	byKey   map[string]entry
	encoded int64 // number of objects without a Go form

	// changed has the changes that are not in the trees: they are made when a reader needs a
	// snapshot. If stale is set, the trees are to be built from all records instead.
	changed []changed
	stale   bool
}

// record is a stored object. It is immutable; an update makes another.
type record struct {
	key    string
	object *object.Object
	value  any        // see [Collection.Values]
	values [][]string // the object's values in each index of the collection
}

// entry is an object's value and its position in records and values. The value is in the map itself,
// so that reading it costs no further access to memory.
type entry struct {
	value any
	pos   int32
}

// changed is a key with the index values that its object had in the trees.
type changed struct {
	key string
	was [][]string
}

// change is a change with the values that its object has in each index.
type change struct {
	store.Change
	values [][]string
}

func newContent(info *store.Info) *content {
	return &content{snapshot: snapshot{info: info}, byKey: map[string]entry{}, stale: true}
}

// object returns the object at key, nil if there is none.
func (c *content) object(key string) *object.Object {
	if e, ok := c.byKey[key]; ok {
		return c.records[e.pos].object
	}
	return nil
}

// errEmptyKey means that a change has no key.
var errEmptyKey = errors.New("change without a key")

// prepare checks changes, calls the index functions and appends the prepared changes to all. It
// does not change c.
func (c *content) prepare(changes []store.Change, all []change) ([]change, error) {
	for _, ch := range changes {
		if ch.Key == "" {
			return nil, errEmptyKey
		}
		all = append(all, change{ch, c.indexValues(ch.Object)})
	}
	return all, nil
}

// indexValues returns the object's values in each index.
func (c *content) indexValues(o *object.Object) [][]string {
	if o == nil || len(c.indexes) == 0 {
		return nil
	}
	values := make([][]string, len(c.indexes))
	for i, x := range c.indexes {
		values[i] = x.Values(o)
	}
	return values
}

// apply makes prepared changes of a batch, and sets its checkpoint unless that is zero.
func (c *content) apply(changes []change, next store.Checkpoint) {
	for i := range changes {
		c.set(&changes[i])
	}
	if next != (store.Checkpoint{}) {
		c.state.Checkpoint = next
	}
}

// set makes one change.
func (c *content) set(ch *change) {
	at, had := c.byKey[ch.Key]
	pos := at.pos
	if !had && ch.Object == nil {
		return
	}
	next := &record{ch.Key, ch.Object, value(ch.Object), ch.values}
	var values [][]string
	if had {
		old := c.records[pos]
		values, next.key = old.values, old.key
		if slices.EqualFunc(values, next.values, slices.Equal[[]string]) {
			next.values = values
		}
		c.count(-1, old.object)
	}
	c.behind(next.key, values)
	if next.object == nil {
		c.remove(pos)
		return
	}
	if !had {
		pos = int32(len(c.records))
		c.records = append(c.records, nil)
	}
	c.count(1, next.object)
	c.put(next, pos)
}

func (c *content) put(r *record, pos int32) {
	c.records[pos] = r
	c.values.set(pos, r.value)
	c.byKey[r.key] = entry{r.value, pos}
}

// remove deletes the record at pos. The last one moves to pos.
func (c *content) remove(pos int32) {
	delete(c.byKey, c.records[pos].key)
	last := len(c.records) - 1
	if int(pos) != last {
		c.put(c.records[last], pos)
	}
	c.records[last] = nil
	c.records = c.records[:last]
	c.values.pop()
}

// behind notes that the object at key has changed, and that the trees still have it under the index
// values was.
func (c *content) behind(key string, was [][]string) {
	switch {
	case c.stale:
	case len(c.changed) > 1000+len(c.records)/4: // they would take about as long as all
		c.stale, c.changed, c.trees = true, nil, trees{} // which would keep the old objects in memory
	default:
		c.changed = append(c.changed, changed{key, was})
	}
}

func (c *content) count(n int64, o *object.Object) {
	if o.Go() == nil {
		c.encoded += n
	}
	if o.Encoded() {
		c.state.Bytes += n * int64(o.Size())
	}
	c.state.Count += n
}

// value returns an object's Go form, or the object itself if it has none.
func value(o *object.Object) any {
	if o != nil {
		if v := o.Go(); v != nil {
			return v
		}
	}
	return o
}

// catchUp takes the trees out of c, and returns a function that brings them up to date. The function
// may run concurrently with changes of c.
func (c *content) catchUp() func() trees {
	if c.stale {
		all, indexes := slices.Clone(c.records), len(c.indexes)
		c.stale = false
		return func() trees {
			t := newTrees(indexes)
			for _, r := range all {
				t.set(r, nil)
			}
			return t
		}
	}
	t, behind := c.trees, c.changed
	c.trees, c.changed = trees{}, nil
	now := make([]*record, len(behind))
	for i, ch := range behind {
		if e, ok := c.byKey[ch.key]; ok {
			now[i] = c.records[e.pos]
		}
	}
	return func() trees {
		for i, ch := range behind {
			if now[i] != nil {
				t.set(now[i], ch.was)
			} else {
				t.remove(ch.key, ch.was)
			}
		}
		return t
	}
}

// reindex replaces the indexes of a draft. If they are others, it calls their functions for all
// objects.
func (c *content) reindex(indexes []store.Index) {
	same := c.hasIndexes(indexes)
	c.indexes = indexes
	if same {
		return
	}
	for i, r := range c.records {
		c.records[i] = &record{r.key, r.object, r.value, c.indexValues(r.object)}
	}
	c.stale, c.changed = true, nil
}

// hasIndexes reports whether the collection has exactly these indexes, by name and spec.
func (c *content) hasIndexes(indexes []store.Index) bool {
	same := func(a, b store.Index) bool { return a.Name == b.Name && a.Spec == b.Spec }
	return slices.EqualFunc(c.indexes, indexes, same)
}
