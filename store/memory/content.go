package memory

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/internal/history"
)

// content is a state of a collection: its objects, checkpoint, indexes and history.
type content struct {
	info    *store.Info // never changed
	state   store.State
	slots   slots
	keys    *btree.Map[string, int32] // positions in slots, by key
	indexes []index                   // by name
	feed    feed
	encoded int64 // number of objects without a Go form
	gone    bool  // the collection was dropped

	// byKey has the positions of keys in a map, for faster lookups. It is valid for the newest
	// state and in drafts, not in snapshots.
	byKey map[string]entry
}

// entry is an object's position in slots and its value.
type entry struct {
	value any
	pos   int32
}

// index is an index with its entries in order.
type index struct {
	store.Index
	entries *btree.BTreeG[indexEntry]
}

type indexEntry struct {
	store.IndexEntry
	pos int32
}

// change is a change with the values that its object has in each index.
type change struct {
	store.Change
	values [][]string
}

// degree is the degree of the B-trees. A node has up to twice as many keys, which the first change
// after a snapshot copies.
const degree = 16

func newContent(info *store.Info) *content {
	return &content{
		info: info, slots: newSlots(), keys: btree.NewMap[string, int32](degree), feed: newFeed(history.Head{}), byKey: map[string]entry{},
	}
}

func newIndex(x store.Index) index {
	return index{x, btree.NewBTreeGOptions(indexBefore, btree.Options{Degree: degree, NoLocks: true})}
}

func indexBefore(a, b indexEntry) bool {
	if a.Value != b.Value {
		return a.Value < b.Value
	}
	return a.Key < b.Key
}

// snapshot returns a copy of c for readers, in constant time. It must not run concurrently with
// another method of c.
func (c *content) snapshot() *content {
	d := *c
	d.slots, d.keys, d.feed = c.slots.copy(), c.keys.Copy(), c.feed.copy()
	d.indexes = slices.Clone(c.indexes)
	for i := range d.indexes {
		d.indexes[i].entries = c.indexes[i].entries.Copy()
	}
	return &d
}

// object returns the object at key, nil if there is none. Not for snapshots.
func (c *content) object(key string) *object.Object {
	if e, ok := c.byKey[key]; ok {
		return c.slots.at(e.pos).object
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
		all = append(all, change{ch, c.values(ch.Object)})
	}
	return all, nil
}

// values returns the object's values in each index.
func (c *content) values(o *object.Object) [][]string {
	if o == nil || len(c.indexes) == 0 {
		return nil
	}
	values := make([][]string, len(c.indexes))
	for i, x := range c.indexes {
		values[i] = x.Values(o)
	}
	return values
}

// apply makes prepared changes, and sets the checkpoint unless it is zero. If forgetful is set, it
// records no history.
func (c *content) apply(changes []change, cp *store.Checkpoint, forgetful bool) error {
	var log []history.Change
	for i := range changes {
		if old := c.set(&changes[i]); !forgetful {
			log = append(log, c.feed.change(changes[i].Change, old))
		}
	}
	known := c.state.RV
	if *cp != (store.Checkpoint{}) {
		c.state.Checkpoint = *cp
	}
	if forgetful {
		return nil
	}
	return c.feed.record(log, known, &c.state.Checkpoint) // in memory it never fails
}

// set makes one change and returns the object that was at its key, nil if there was none.
func (c *content) set(ch *change) *object.Object {
	at, had := c.byKey[ch.Key]
	pos := at.pos
	next := &record{ch.Key, ch.Object, ch.values}
	switch {
	case had && ch.Object == nil:
		return c.remove(pos).object
	case ch.Object == nil:
		return nil
	case !had:
		pos = int32(c.slots.count)
		c.keys.Set(ch.Key, pos)
		c.file(next, pos)
		c.store(next, pos)
		return nil
	}
	old := c.slots.at(pos)
	if next.key = old.key; sameValues(old.values, next.values) {
		next.values = old.values
	} else {
		c.unfile(old)
		c.file(next, pos)
	}
	c.total(-1, old)
	c.store(next, pos)
	return old.object
}

// store sets the record at pos, and adds it to the totals and the map.
func (c *content) store(r *record, pos int32) {
	c.total(1, r)
	v := value(r.object)
	c.slots.set(pos, r, v)
	c.byKey[r.key] = entry{v, pos}
}

// remove deletes the object at pos and returns it. The last object moves to pos.
func (c *content) remove(pos int32) *record {
	old := c.slots.at(pos)
	c.unfile(old)
	c.total(-1, old)
	c.keys.Delete(old.key)
	delete(c.byKey, old.key)
	if last, v := c.slots.pop(); last != old {
		c.slots.set(pos, last, v)
		c.keys.Set(last.key, pos)
		c.file(last, pos)
		c.byKey[last.key] = entry{v, pos}
	}
	return old
}

func (c *content) total(n int64, r *record) {
	if r.object.Go() == nil {
		c.encoded += n
	}
	if r.object.Encoded() {
		c.state.Bytes += n * int64(r.object.Size())
	}
	c.state.Count += n
}

// value returns an object's Go form, or the object itself if it has none.
func value(o *object.Object) any {
	if v := o.Go(); v != nil {
		return v
	}
	return o
}

// file adds a record to the indexes, or sets its new position in them.
func (c *content) file(r *record, pos int32) {
	for i, values := range r.values {
		for _, v := range values {
			c.indexes[i].entries.Set(indexEntry{store.IndexEntry{Value: v, Key: r.key}, pos})
		}
	}
}

func (c *content) unfile(r *record) {
	for i, values := range r.values {
		for _, v := range values {
			c.indexes[i].entries.Delete(indexEntry{IndexEntry: store.IndexEntry{Value: v, Key: r.key}})
		}
	}
}

func sameValues(a, b [][]string) bool { return slices.EqualFunc(a, b, slices.Equal[[]string]) }

// reindex replaces the indexes of a draft. It keeps the indexes of the same name and spec, and
// builds the others.
func (c *content) reindex(indexes []store.Index) {
	next, known := make([]index, len(indexes)), make([]int, len(indexes))
	for i, x := range indexes {
		next[i] = newIndex(x)
		known[i] = slices.IndexFunc(c.indexes, func(have index) bool { return have.Name == x.Name && have.Spec == x.Spec })
		if known[i] >= 0 {
			next[i].entries = c.indexes[known[i]].entries
		}
	}
	same := c.hasIndexes(indexes)
	c.indexes = next
	if same {
		return
	}
	for pos := range int32(c.slots.count) {
		old := c.slots.at(pos)
		r := &record{old.key, old.object, make([][]string, len(next))}
		for i, x := range next {
			if known[i] >= 0 {
				r.values[i] = old.values[known[i]]
				continue
			}
			r.values[i] = x.Values(r.object)
			for _, v := range r.values[i] {
				x.entries.Set(indexEntry{store.IndexEntry{Value: v, Key: r.key}, pos})
			}
		}
		c.slots.set(pos, r, c.slots.value(pos))
	}
}

// hasIndexes reports whether the collection has exactly these indexes, by name and spec.
func (c *content) hasIndexes(indexes []store.Index) bool {
	return slices.EqualFunc(c.indexes, indexes, func(a index, b store.Index) bool { return a.Name == b.Name && a.Spec == b.Spec })
}

// index returns the index with a name.
func (c *content) index(name string) (*index, bool) {
	i, ok := slices.BinarySearchFunc(c.indexes, name, func(x index, name string) int { return strings.Compare(x.Name, name) })
	if !ok {
		return nil, false
	}
	return &c.indexes[i], true
}

// sortIndexes returns indexes ordered by name, or an error if they can't be the indexes of one
// collection.
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
