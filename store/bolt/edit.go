package bolt

import (
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

// Put sets a key.
func (t *editTable) Put(key, value []byte) error {
	t.edit.cells[t.prefix+string(key)] = writeback.Cell{Value: value}
	return nil
}

// putToPack sets a key to a record that is to be compressed before it is written.
func (t *editTable) putToPack(key, value []byte, by *collection) error {
	t.edit.cells[t.prefix+string(key)] = writeback.Cell{Value: value, Pack: by.packFunc}
	return nil
}

// Delete removes a key.
func (t *editTable) Delete(key []byte) error {
	t.edit.cells[t.prefix+string(key)] = writeback.Cell{Deleted: true}
	return nil
}
