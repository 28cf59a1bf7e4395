package writeback

import (
	"iter"
	"sync"

	"github.com/tidwall/btree"
)

// Cell is the newest state of one key of one bucket.
type Cell struct {
	Value   []byte
	Deleted bool

	// Pack compresses the value before it is written; nil if there is nothing to compress.
	Pack func(key, value []byte) ([]byte, error)
}

// size returns the bytes that a cell at addr counts for until it is packed.
func (c Cell) size(addr string) int {
	n := len(c.Value)
	if c.Pack != nil {
		n /= packRatio
	}
	return n + len(addr)
}

// memtable is the ordered overlay over the whole file: the changes since the newest fold. Readers
// see file and overlay as one.
//
// Its keys are the path of a bucket and a key in it, see format.Address.
type memtable struct {
	mu      sync.Mutex // held for work in memory only, never for I/O
	tree    btree.Map[string, Cell]
	bytes   int
	snap    *Overlay // of tree as it is; nil if tree has changed since
	epoch   uint64   // of the file that the overlay fits
	folding bool     // the overlay fits the next epoch too
}

// Overlay is a memtable as it was at one moment. It never changes.
type Overlay struct {
	tree    *btree.Map[string, Cell]
	epoch   uint64
	folding bool
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

// live returns the memtable itself, which the writer may use until the next put.
func (m *memtable) live() *Overlay {
	return &Overlay{tree: &m.tree, epoch: m.epoch, folding: m.folding}
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
		old, replaced := m.tree.Set(addr, c)
		if replaced {
			m.bytes -= len(addr) + len(old.Value)
		}
		m.bytes += len(addr) + len(c.Value)
	}
}

// load fills an empty memtable with cells in the order of their addresses.
func (m *memtable) load(cells iter.Seq2[string, Cell]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snap = nil
	for addr, c := range cells {
		m.tree.Load(addr, c)
		m.bytes += len(addr) + len(c.Value)
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
		m.tree, m.bytes = btree.Map[string, Cell]{}, 0
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

// Fits reports whether the overlay and the file at epoch are one consistent state.
//
// An empty overlay fits any: a file by itself is a consistent state. Otherwise the file must be the
// one that the overlay was made on, or the one that it was just folded into, because putting the
// same cells again changes nothing.
func (o *Overlay) Fits(epoch uint64) bool {
	return o.tree.Len() == 0 || epoch == o.epoch || o.folding && epoch == o.epoch+1
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
