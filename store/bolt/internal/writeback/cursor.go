package writeback

import (
	"bytes"

	"github.com/tidwall/btree"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

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
	return c.overOK && len(c.over.Key()) >= len(c.prefix) && c.over.Key()[:len(c.prefix)] == c.prefix
}

func (c *Cursor) overKey() string { return c.over.Key()[len(c.prefix):] }
