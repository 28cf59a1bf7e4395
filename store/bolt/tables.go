package bolt

import (
	"bytes"
	"slices"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// table is a bucket that can be read and written: one of the file in a write
// transaction, or one of the memtable on top of the file.
type table interface {
	Get(key []byte) []byte
	Put(key, value []byte) error
	Delete(key []byte) error
}

var (
	_ table = (*boltfile.Bucket)(nil)
	_ table = (*editTable)(nil)
)

// edit is a set of changes to the memtable that become visible together.
type edit struct {
	base  *view
	cells map[string]writeback.Cell
}

// editTable is one bucket in an edit.
type editTable struct {
	edit   *edit
	path   [][]byte
	prefix string // of its addresses
}

func (e *edit) table(path ...[]byte) *editTable {
	return &editTable{edit: e, path: path, prefix: format.Address(path, nil)}
}

// Get returns the value of a key from the edit, else from the memtable, else from the file.
func (t *editTable) Get(key []byte) []byte {
	addr := t.prefix + string(key)
	if c, ok := t.edit.cells[addr]; ok {
		if c.Deleted {
			return nil
		}
		return c.Value
	}
	return t.edit.base.lookupAt(addr, t.path, key)
}

func (t *editTable) Put(key, value []byte) error {
	t.edit.cells[t.prefix+string(key)] = writeback.Cell{Value: value}
	return nil
}

// putToPack sets a key to a record that is to be compressed before it is written.
func (t *editTable) putToPack(key, value []byte, by *collection) error {
	t.edit.cells[t.prefix+string(key)] = writeback.Cell{Value: value, Pack: by.packFunc}
	return nil
}

func (t *editTable) Delete(key []byte) error {
	t.edit.cells[t.prefix+string(key)] = writeback.Cell{Deleted: true}
	return nil
}

// foundBucket is a bucket that a view has read, with its path.
type foundBucket struct {
	path   [][]byte
	bucket *boltfile.Bucket
}

// bucket returns a bucket of the file, nil if there is none. It keeps each that it finds, as opening
// the same few for each read takes longer than the reads. Buckets of a transaction that the view does
// not own may be deleted meanwhile, so it does not keep these.
func (v *view) bucket(path [][]byte) (b *boltfile.Bucket) {
	if v.found == nil {
		return v.tx.At(path)
	}
	for _, f := range v.found {
		if slices.EqualFunc(f.path, path, bytes.Equal) {
			return f.bucket
		}
	}
	last := len(path) - 1
	if last == 0 {
		b = v.tx.Bucket(path[0])
	} else if in := v.bucket(path[:last]); in != nil {
		b = in.Bucket(path[last])
	}
	if b != nil {
		v.found = append(v.found, foundBucket{path, b})
	}
	return b
}

// lookup returns the value of a key, nil if there is none.
func (v *view) lookup(path [][]byte, key []byte) []byte {
	if v.over.Empty() {
		return v.lookupAt("", path, key)
	}
	return v.lookupAt(format.Address(path, key), path, key)
}

// lookupAt is lookup with the address of the key.
func (v *view) lookupAt(addr string, path [][]byte, key []byte) []byte {
	if c, ok := v.over.Get(addr); ok {
		if c.Deleted {
			return nil
		}
		return c.Value
	}
	if b := v.bucket(path); b != nil {
		return b.Get(key)
	}
	return nil
}
