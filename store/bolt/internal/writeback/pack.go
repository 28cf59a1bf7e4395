package writeback

import (
	"fmt"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// Objects go into the memtable uncompressed, and are compressed just before they are written: an
// object that changes many times between two flushes is compressed once, and Put does not wait for
// the compression.

const (
	// packRatio is the least factor by which packing is expected to shrink a cell. Dirty bytes are
	// counted as they will be written.
	packRatio = 4

	// packCells is how many packed cells are put into the memtable at a time: a reader that takes a
	// view waits for them. Readers see the same content, packed or not.
	packCells = 128
)

// pack compresses the dirty cells that have a Pack function.
func (l *Log) pack() error {
	over := l.mem.snapshot()
	packed := map[string]Cell{}
	for addr := range l.dirty {
		x, ok := over.Get(addr)
		if !ok || x.Pack == nil {
			continue
		}
		_, key := format.Locate(addr)
		value, err := x.Pack(key, x.Value)
		if err != nil {
			return fmt.Errorf("compress %s: %w", key, err)
		}
		packed[addr] = Cell{Value: value}
		more := len(value) - len(x.Value)/packRatio // the packed size, less the estimate
		l.schedule.bytes += more
		l.dirty[addr] += more
		if len(packed) == packCells {
			l.mem.put(packed)
			clear(packed)
		}
	}
	l.mem.put(packed)
	return nil
}
