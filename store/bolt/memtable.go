package bolt

import (
	"bytes"
	"iter"
	"sync"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/tidwall/btree"
)

// cell is what the memtable says about one key of one bucket.
type cell struct {
	value   []byte
	deleted bool
	packer  *collection // compresses the value before it is written; nil where nobody has to
}

// memtable is the ordered overlay over the whole file: what was applied since the
// newest fold. Readers see file and overlay as one.
//
// Its keys are the path of a bucket and a key in it, see [address].
type memtable struct {
	mu      sync.Mutex // held for moves in memory only, never for I/O
	tree    btree.Map[string, cell]
	bytes   int
	snap    *overlay // of tree as it is; nil where tree has changed since
	epoch   uint64   // of the file that the overlay belongs on
	folding bool     // the overlay is right on the next epoch too
}

// overlay is a memtable as it was at one moment. It never changes.
type overlay struct {
	tree    *btree.Map[string, cell]
	epoch   uint64
	folding bool
}

// snapshot returns the memtable as it is. It costs a copy of the root at most.
func (m *memtable) snapshot() *overlay {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.snap == nil {
		m.snap = &overlay{tree: m.tree.Copy(), epoch: m.epoch, folding: m.folding}
	}
	return m.snap
}

// live is the memtable itself, for whoever holds the write lock, until the next put.
func (m *memtable) live() *overlay {
	return &overlay{tree: &m.tree, epoch: m.epoch, folding: m.folding}
}

// put makes all cells visible at once.
func (m *memtable) put(cells map[string]cell) {
	if len(cells) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snap = nil
	for addr, c := range cells {
		old, replaced := m.tree.Set(addr, c)
		if replaced {
			m.bytes -= len(addr) + len(old.value)
		}
		m.bytes += len(addr) + len(c.value)
	}
}

// load fills an empty memtable with cells in the order of their addresses.
func (m *memtable) load(cells iter.Seq2[string, cell]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snap = nil
	for addr, c := range cells {
		m.tree.Load(addr, c)
		m.bytes += len(addr) + len(c.value)
	}
}

// foldBegins says that the file is about to get what the overlay has, or something
// that no reader sees: until foldEnds the overlay is right on both.
func (m *memtable) foldBegins() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.folding, m.snap = true, nil
}

// foldEnds says what epoch the file has, and whether it has all of the overlay.
func (m *memtable) foldEnds(epoch uint64, folded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.folding, m.epoch, m.snap = false, epoch, nil
	if folded {
		m.tree, m.bytes = btree.Map[string, cell]{}, 0
	}
}

func (m *memtable) cells() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tree.Len()
}

func (m *memtable) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// fits says whether overlay and a file of an epoch are one consistent state.
//
// An empty overlay fits any: a file by itself is a consistent state. Otherwise the
// file must be the one that the overlay was made on, or the one that it was just
// folded into: putting the same cells on it again changes nothing.
func (o *overlay) fits(epoch uint64) bool {
	return o.tree.Len() == 0 || epoch == o.epoch || o.folding && epoch == o.epoch+1
}

// get returns what the overlay says about an address, and whether it says anything.
func (o *overlay) get(addr string) (cell, bool) {
	if o.tree.Len() == 0 {
		return cell{}, false
	}
	return o.tree.Get(addr)
}

// cursor goes through the keys of a bucket as overlay and file say together.
type cursor struct {
	file   *boltfile.Cursor // nil where the file has no such bucket
	prefix string           // of the bucket's addresses
	over   btree.MapIter[string, cell]

	fileKey, fileValue []byte
	overOK             bool
}

func (o *overlay) cursor(path [][]byte, b *boltfile.Bucket) *cursor {
	c := &cursor{prefix: format.Address(path, nil), over: o.tree.Iter()}
	if b != nil {
		c.file = b.Cursor()
	}
	return c
}

// seek moves to the first key that is not before key.
func (c *cursor) seek(key []byte) (k, v []byte) {
	if c.file != nil {
		c.fileKey, c.fileValue = c.file.Seek(key)
	}
	c.overOK = c.over.Seek(c.prefix + string(key))
	return c.settle()
}

// next moves to the key after k, which is where the cursor is.
func (c *cursor) next(k []byte) (key, v []byte) {
	if c.fileKey != nil && bytes.Equal(c.fileKey, k) {
		c.nextFile()
	}
	if c.inOver() && string(k) == c.overKey() {
		c.overOK = c.over.Next()
	}
	return c.settle()
}

// settle returns the lower of the two keys, the overlay's where they are equal,
// passing over what the overlay says is deleted.
func (c *cursor) settle() (k, v []byte) {
	for {
		if !c.inOver() {
			return c.fileKey, c.fileValue
		}
		key, value := c.overKey(), c.over.Value()
		if c.fileKey != nil && string(c.fileKey) < key {
			return c.fileKey, c.fileValue
		}
		if !value.deleted {
			return []byte(key), value.value
		}
		if c.fileKey != nil && string(c.fileKey) == key {
			c.nextFile()
		}
		c.overOK = c.over.Next()
	}
}

func (c *cursor) nextFile() { c.fileKey, c.fileValue = c.file.Next() }

// inOver says that the overlay has a key of this bucket at or after the cursor.
func (c *cursor) inOver() bool {
	return c.overOK && len(c.over.Key()) >= len(c.prefix) && c.over.Key()[:len(c.prefix)] == c.prefix
}

func (c *cursor) overKey() string { return c.over.Key()[len(c.prefix):] }
