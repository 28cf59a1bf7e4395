package bolt

import (
	"fmt"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// What is applied goes into the memtable as it is, and is compressed when it is about
// to be written: an object that changes many times between two flushes is compressed
// once, and whoever applies does not wait for it.

// packRatio is by what packing is expected to make records smaller, at least. What
// waits to be flushed is counted as what will be written.
const packRatio = 4

// packCells is how many packed records are put into the memtable at a time: whoever
// takes a view waits for that. One by one or all at once, they say the same.
const packCells = 128

// pack compresses the records that wait for it. The caller holds the write lock.
func (db *DB) pack() error {
	over := db.mem.snapshot()
	packed := map[string]cell{}
	for addr := range db.dirty {
		x, ok := over.tree.Get(addr)
		if !ok || x.packer == nil {
			continue
		}
		_, key := format.Locate(addr)
		value, err := x.packer.packed(key, x.value)
		if err != nil {
			return fmt.Errorf("compress %s: %w", key, err)
		}
		packed[addr] = cell{value: value}
		more := len(value) - len(x.value)/packRatio // what it really is
		db.dirtyBytes += more
		db.dirty[addr] += more
		if len(packed) == packCells {
			db.mem.put(packed)
			clear(packed)
		}
	}
	db.mem.put(packed)
	return nil
}

// packed compresses a record of the collection.
func (c *collection) packed(key, b []byte) ([]byte, error) {
	r, err := format.ParseRecord(b)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	id, dict := c.dictID, c.dict
	c.mu.Unlock()
	raw := r.Payload
	if err := c.db.codecs.Compress(&r, id, dict); err != nil {
		return nil, err
	}
	c.training.encoded(len(raw), len(r.Payload), func() *object.Object {
		o, err := object.FromValid(append([]byte(nil), raw...))
		if err != nil {
			return nil // no sample then
		}
		return o
	})
	return r.Encode(key), nil
}
