package boltfile

import bbolt "go.etcd.io/bbolt"

// Cursor iterates over the keys of a bucket, in order.
type Cursor struct {
	bucket *Bucket
	raw    bbolt.Cursor
}

// First moves to the first key.
func (c *Cursor) First() (key, value []byte) { return c.opened(c.raw.First()) }

// Next moves to the next key.
func (c *Cursor) Next() (key, value []byte) { return c.opened(c.raw.Next()) }

// Seek moves to the first key that is not before key.
func (c *Cursor) Seek(key []byte) (k, value []byte) { return c.opened(c.raw.Seek(key)) }

func (c *Cursor) opened(k, v []byte) (key, value []byte) {
	return k, c.bucket.opened(k, v)
}
