package writeback

import (
	"bytes"
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// Cell is the newest state of one key of one bucket.
type Cell struct {
	Value   []byte
	Deleted bool

	// Pack compresses the value before it is written; nil if there is nothing to compress.
	Pack func(key, value []byte) ([]byte, error)
}

// size returns the bytes that a cell at addr counts for until it is packed: as many as it is expected to
// have then or, while cells have to wait in memory, as many as it has there.
func (c Cell) size(addr string, waits bool) int {
	n := len(c.Value)
	if c.Pack != nil && !waits {
		n /= packRatio
	}
	return n + len(addr)
}

// memtable is the ordered overlay over the whole file: the changes since the newest fold. Readers
// see file and overlay as one.
//
// Its keys are the path of a bucket and a key in it, see format.Address.
type memtable struct {
	Overlay            // the state for new readers
	mu      sync.Mutex // held for work in memory only, never for I/O
	snap    *Overlay   // a copy of the Overlay as it is; nil if that has changed since
}

// Overlay is a memtable as it was at one moment. It never changes.
type Overlay struct {
	tree    *btree.Map[string, Cell]
	epoch   uint64 // of the file that the overlay fits
	folding bool   // the overlay fits the next epoch too
}

// snapshot returns an immutable copy of the memtable. It copies at most the root of the tree.
func (m *memtable) snapshot() *Overlay {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.snap == nil {
		m.snap = &Overlay{tree: m.tree.Copy(), epoch: m.epoch, folding: m.folding}
	}
	return m.snap
}

// put makes all cells visible at once.
func (m *memtable) put(cells map[string]Cell) {
	if len(cells) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snap = nil
	for addr, c := range cells {
		m.tree.Set(addr, c)
	}
}

// foldBegins is called before a rewrite of the file that is invisible to readers of the memtable.
// Until foldEnds, readers may pair the overlay with the file at epoch or epoch+1: applying the
// cells twice is harmless.
func (m *memtable) foldBegins() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.folding, m.snap = true, nil
}

// foldEnds sets the file's new epoch. If folded, the file has the whole overlay, and the memtable
// is emptied.
func (m *memtable) foldEnds(epoch uint64, folded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.folding, m.epoch, m.snap = false, epoch, nil
	if folded {
		m.tree = &btree.Map[string, Cell]{}
	}
}

func (m *memtable) cells() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tree.Len()
}

// Fits reports whether the overlay and the file at epoch are one consistent state: the file must be the
// one that the overlay was made on, or the one that it was just folded into, because putting the same
// cells again changes nothing. That goes for an empty overlay too: in a file of a later epoch a fold may be
// half done, whose other half is in the journal and in a later overlay.
func (o *Overlay) Fits(epoch uint64) bool {
	return epoch == o.epoch || o.folding && epoch == o.epoch+1
}

// NoOverlay returns an overlay without cells, for reads of the file alone.
func NoOverlay() *Overlay { return &Overlay{tree: &btree.Map[string, Cell]{}} }

// Empty reports whether the overlay has no cells.
func (o *Overlay) Empty() bool { return o.tree.Len() == 0 }

// Get returns the cell at an address, and whether there is one.
func (o *Overlay) Get(addr string) (Cell, bool) {
	if o.tree.Len() == 0 {
		return Cell{}, false
	}
	return o.tree.Get(addr)
}

// Cursor iterates over the keys of a bucket in order, with the overlay applied to the file.
type Cursor struct {
	file   *boltfile.Cursor // nil if the file has no such bucket
	prefix string           // of the bucket's addresses
	over   btree.MapIter[string, Cell]

	fileKey, fileValue []byte
	overOK             bool
}

// Cursor returns a cursor over the bucket at path, which is b in the file, nil for none.
func (o *Overlay) Cursor(path [][]byte, b *boltfile.Bucket) *Cursor {
	c := &Cursor{prefix: format.Address(path, nil), over: o.tree.Iter()}
	if b != nil {
		c.file = b.Cursor()
	}
	return c
}

// Seek moves to the first key that is not before key.
func (c *Cursor) Seek(key []byte) (k, v []byte) {
	if c.file != nil {
		c.fileKey, c.fileValue = c.file.Seek(key)
	}
	c.overOK = c.over.Seek(c.prefix + string(key))
	return c.lower()
}

// Next moves to the key after k, the cursor's current key.
func (c *Cursor) Next(k []byte) (key, v []byte) {
	if c.fileKey != nil && bytes.Equal(c.fileKey, k) {
		c.nextFile()
	}
	if c.inOver() && string(k) == c.overKey() {
		c.overOK = c.over.Next()
	}
	return c.lower()
}

// lower returns the lower of the two keys, the overlay's if they are equal. It skips keys
// that are deleted in the overlay.
func (c *Cursor) lower() (k, v []byte) {
	for {
		if !c.inOver() {
			return c.fileKey, c.fileValue
		}
		key, value := c.overKey(), c.over.Value()
		if c.fileKey != nil && string(c.fileKey) < key {
			return c.fileKey, c.fileValue
		}
		if !value.Deleted {
			return []byte(key), value.Value
		}
		if c.fileKey != nil && string(c.fileKey) == key {
			c.nextFile()
		}
		c.overOK = c.over.Next()
	}
}

func (c *Cursor) nextFile() { c.fileKey, c.fileValue = c.file.Next() }

// inOver reports whether the overlay has a key of this bucket at or after the cursor.
func (c *Cursor) inOver() bool {
	return c.overOK && strings.HasPrefix(c.over.Key(), c.prefix)
}

func (c *Cursor) overKey() string { return c.over.Key()[len(c.prefix):] }
