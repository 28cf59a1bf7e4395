package boltfile

import (
	"bytes"
	"errors"
	"strings"

	bbolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// sequentialFill is how full pages become if keys come in order. bbolt's default of a half would
// take twice the pages; entirely full pages would leave no space to grow.
const sequentialFill = 0.95

// Bucket is a bucket of a file in a transaction. Its values are in clear, also in an encrypted
// file, and valid until the transaction ends.
type Bucket struct {
	tx     *Tx
	raw    *bbolt.Bucket
	sealed bool   // its values are encrypted
	depth  int    // the number of buckets around it
	prefix string // the prefix of its addresses; only in an encrypted file
}

// place sets whether the values of the bucket are encrypted, by the bucket's place in the file.
// The values of meta are not, and index entries have no values.
func (b *Bucket) place(in *Bucket, name []byte) {
	if in == nil {
		b.prefix = string(name) + "\x00"
		b.sealed = !bytes.Equal(name, format.BucketMeta)
		return
	}
	b.prefix = strings.TrimSuffix(in.prefix, "\x00") + "\x01" + string(name) + "\x00"
	index := b.depth == 3 && (bytes.Equal(name, format.BucketIndex) || bytes.Equal(name, format.BucketDropped))
	b.sealed = in.sealed && !index
}

// opened returns the value of a key in clear, nil if there is none.
func (b *Bucket) opened(key, value []byte) []byte {
	if !b.sealed || value == nil {
		return value
	}
	return b.tx.file.cipher.open(value, b.prefix+string(key))
}

// Get returns the value of a key, nil if there is none.
func (b *Bucket) Get(key []byte) []byte { return b.opened(key, b.raw.Get(key)) }

// Put sets the value of a key.
func (b *Bucket) Put(key, value []byte) error {
	if b.sealed {
		value = b.tx.file.cipher.seal(value, b.prefix+string(key))
	}
	return b.raw.Put(key, value)
}

// Delete removes a key.
func (b *Bucket) Delete(key []byte) error { return b.raw.Delete(key) }

// Cursor returns a cursor over the keys, in order.
func (b *Bucket) Cursor() *Cursor { return &Cursor{bucket: b, raw: *b.raw.Cursor()} }

// At returns the bucket at a path within this one, nil if there is none, or if b is nil.
func (b *Bucket) At(path [][]byte) *Bucket {
	for _, name := range path {
		if b == nil {
			return nil
		}
		b = b.Bucket(name)
	}
	return b
}

// Bucket returns a bucket in this one, nil if there is none.
func (b *Bucket) Bucket(name []byte) *Bucket { return b.tx.wrap(b, name, b.raw.Bucket(name)) }

// CreateBucket makes a bucket in this one.
func (b *Bucket) CreateBucket(name []byte) (*Bucket, error) {
	raw, err := b.raw.CreateBucket(name)
	return b.tx.wrap(b, name, raw), err
}

// CreateBucketIfNotExists makes a bucket in this one unless it exists.
func (b *Bucket) CreateBucketIfNotExists(name []byte) (*Bucket, error) {
	raw, err := b.raw.CreateBucketIfNotExists(name)
	return b.tx.wrap(b, name, raw), err
}

// DeleteBucket deletes a bucket in this one, if it exists.
func (b *Bucket) DeleteBucket(name []byte) error {
	err := b.raw.DeleteBucket(name)
	if errors.Is(err, berrors.ErrBucketNotFound) {
		return nil
	}
	return undeleted(b.tx.file.path, name, err)
}

// ForEachBucket calls fn with the names of the buckets in this one.
func (b *Bucket) ForEachBucket(fn func(name []byte) error) error { return b.raw.ForEachBucket(fn) }

// FewerThan reports whether the bucket has fewer than n keys.
func (b *Bucket) FewerThan(n int) bool {
	cur := b.raw.Cursor()
	for k, _ := cur.First(); k != nil; k, _ = cur.Next() {
		if n--; n <= 0 {
			return false
		}
	}
	return true
}

// FillSequentially makes full pages instead of half-full ones, for keys that are put in order.
func (b *Bucket) FillSequentially() { b.raw.FillPercent = sequentialFill }

// HasPage reports whether the bucket has a page of its own. One that was just created has none, and one with a bucket in
// it always has.
func (b *Bucket) HasPage() bool { return b.raw.Root() != 0 }

// Sequence returns the bucket's sequence.
func (b *Bucket) Sequence() uint64 { return b.raw.Sequence() }

// SetSequence sets the bucket's sequence.
func (b *Bucket) SetSequence(n uint64) error { return b.raw.SetSequence(n) }

// NextSequence increments the bucket's sequence and returns it.
func (b *Bucket) NextSequence() (uint64, error) { return b.raw.NextSequence() }

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

func (c *Cursor) opened(k, v []byte) (key, value []byte) { return k, c.bucket.opened(k, v) }
