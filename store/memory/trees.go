package memory

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/snapcache/snapcache/store"
)

// snapshot is a state of a collection for readers.
type snapshot struct {
	info    *store.Info // never changed
	state   store.State
	indexes []store.Index     // by name
	gone    bool              // the collection was dropped
	about   store.Description // only for readers, see collection.about
	trees
}

// trees are the records in order, copied on write.
type trees struct {
	keys    *btree.Map[string, *record]
	entries []*btree.BTreeG[indexEntry] // of the namespace index, and then of each index
}

type indexEntry struct {
	store.IndexEntry
	*record
}

// degree is the degree of the B-trees. A node has up to twice as many keys, which the first change
// after a snapshot copies.
const degree = 16

func newTrees(indexes int) trees {
	t := trees{btree.NewMap[string, *record](degree), make([]*btree.BTreeG[indexEntry], 1+indexes)}
	for i := range t.entries {
		t.entries[i] = btree.NewBTreeGOptions(indexBefore, btree.Options{Degree: degree, NoLocks: true})
	}
	return t
}

func indexBefore(a, b indexEntry) bool {
	if a.Value != b.Value {
		return a.Value < b.Value
	}
	return a.Key < b.Key
}

// copy returns a copy that can be changed independently, in constant time.
func (t *trees) copy() trees {
	c := trees{t.keys.Copy(), slices.Clone(t.entries)}
	for i, x := range c.entries {
		c.entries[i] = x.Copy()
	}
	return c
}

// set sets the record at its key, which had the index values was.
func (t *trees) set(r *record, was [][]string) {
	t.unfile(r.key, was)
	t.keys.Set(r.key, r)
	t.entries[0].Set(indexEntry{store.IndexEntry{Value: store.KeyNamespace(r.key), Key: r.key}, r})
	for i, values := range r.values {
		for _, v := range values {
			t.entries[i+1].Set(indexEntry{store.IndexEntry{Value: v, Key: r.key}, r})
		}
	}
}

// remove deletes the record at key, which had the index values was.
func (t *trees) remove(key string, was [][]string) {
	t.unfile(key, was)
	t.keys.Delete(key)
	t.entries[0].Delete(indexEntry{IndexEntry: store.IndexEntry{Value: store.KeyNamespace(key), Key: key}})
}

func (t *trees) unfile(key string, was [][]string) {
	for i, values := range was {
		for _, v := range values {
			t.entries[i+1].Delete(indexEntry{IndexEntry: store.IndexEntry{Value: v, Key: key}})
		}
	}
}

// index returns the entries of an index.
func (s *snapshot) index(name string) (*btree.BTreeG[indexEntry], bool) {
	if name == store.NamespaceIndex {
		return s.entries[0], true
	}
	i, ok := slices.BinarySearchFunc(s.indexes, name, func(x store.Index, name string) int { return strings.Compare(x.Name, name) })
	if !ok {
		return nil, false
	}
	return s.entries[i+1], true
}
