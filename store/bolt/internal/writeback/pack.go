package writeback

import (
	"fmt"
	"slices"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// Objects go into the memtable uncompressed, and are compressed just before they are written: an
// object that changes many times between two flushes is compressed once, and Put does not wait for
// the compression.

const (
	// packRatio is the least factor by which packing is expected to shrink a cell. Dirty bytes are
	// counted as they will be written.
	packRatio = 4

	// PackCells is how many cells are packed at a time: readers that take a view wait while they are put
	// into the memtable, and the writer packs no more before it lets others write. Readers see the same
	// content, packed or not.
	PackCells = 16
)

// Unpacked returns the addresses of the dirty cells that are to be packed before they are written.
func (l *Log) Unpacked() (addrs []string) {
	live := l.Live()
	for addr := range l.dirty {
		if x, ok := live.Get(addr); ok && x.Pack != nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// Pack compresses the cells at addrs that are still unpacked.
func (l *Log) Pack(addrs []string) error {
	live, packed := l.Live(), make(map[string]Cell, len(addrs))
	for _, addr := range addrs {
		x, ok := live.Get(addr)
		if _, dirty := l.dirty[addr]; !ok || !dirty || x.Pack == nil {
			continue
		}
		_, key := format.Locate(addr)
		value, err := x.Pack(key, x.Value)
		if err != nil {
			return fmt.Errorf("compress %s: %w", key, err)
		}
		packed[addr] = Cell{Value: value}
		more := packed[addr].size(addr, false) - l.dirty[addr] // which may be an estimate
		l.schedule.bytes += more
		l.dirty[addr] += more
	}
	l.mem.put(packed)
	return nil
}

// packAll compresses all cells that are not packed.
func (l *Log) packAll() error {
	for addrs := range slices.Chunk(l.Unpacked(), PackCells) {
		if err := l.Pack(addrs); err != nil {
			return err
		}
	}
	return nil
}
