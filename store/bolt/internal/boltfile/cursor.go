package boltfile

import bbolt "go.etcd.io/bbolt"

// Cursor goes through the keys of a bucket, in their order.
type Cursor struct {
	bucket *Bucket
	raw    bbolt.Cursor // of a bucket whose names are not sealed

	keys []string // of one whose names are; nil until it is asked for
	at   int
}

// First moves to the first key.
func (c *Cursor) First() (key, value []byte) {
	if c.bucket.sealing >= sealAll {
		return c.Seek(nil)
	}
	return c.opened(c.raw.First())
}

// Next moves to the next key.
func (c *Cursor) Next() (key, value []byte) {
	if c.bucket.sealing >= sealAll {
		c.at++
		return c.current()
	}
	return c.opened(c.raw.Next())
}

// Seek moves to the first key that is not before key.
func (c *Cursor) Seek(key []byte) (k, value []byte) {
	if c.bucket.sealing >= sealAll {
		return c.seekSealed(string(key))
	}
	return c.opened(c.raw.Seek(key))
}

func (c *Cursor) opened(k, v []byte) (key, value []byte) {
	if c.bucket.sealing == sealNothing {
		return k, v
	}
	return k, c.bucket.opened(k, v)
}
