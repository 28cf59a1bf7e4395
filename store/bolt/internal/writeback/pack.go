package writeback

import (
	"fmt"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// What is applied goes into the memtable as it is, and is compressed when it is about
// to be written: an object that changes many times between two flushes is compressed
// once, and the writer does not wait for it.

const (
	// packRatio is by what packing is expected to make cells smaller, at least. What
	// waits to be flushed is counted as what will be written.
	packRatio = 4

	// packCells is how many packed cells are put into the memtable at a time: a reader that
	// takes a view waits for that. One by one or all at once, readers see the same.
	packCells = 128
)

// pack compresses the cells that wait for it.
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
		more := len(value) - len(x.Value)/packRatio // what it really is
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
