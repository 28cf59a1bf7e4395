package boltfile

import (
	"errors"
	"strings"

	bbolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// sequentialFill is how full pages are made if keys come in order: bbolt's own half
// would take twice the pages, and no page can grow in full ones.
const sequentialFill = 0.95

// sealing is the part of a bucket that is encrypted.
type sealing int

const (
	sealNothing sealing = iota
	sealValues
	sealAll   // names as well
	sealNames // of entries without values
)

// Bucket is a bucket of a file in a transaction. Keys and values are in clear, whatever the
// file is encrypted with; those that it returns are valid until the transaction ends.
type Bucket struct {
	tx  *Tx
	raw *bbolt.Bucket // as bbolt has it

	sealing sealing
	depth   int    // how many buckets it is in
	prefix  string // of its addresses; only in an encrypted file
}

// place sets what of the bucket is encrypted, from its place in the file.
func (b *Bucket) place(in *Bucket, name []byte) {
	path := string(name)
	if in != nil {
		path = strings.TrimSuffix(in.prefix, "\x00") + "\x01" + path
	}
	b.prefix = path + "\x00"
	switch {
	case in == nil && string(name) != string(format.BucketMeta):
		b.sealing = sealValues
	case in == nil:
	case b.depth == 3 && in.sealing == sealValues && string(name) == string(format.BucketObjects):
		b.sealing = sealAll
	case b.depth == 3 && in.sealing == sealValues && string(name) == string(format.BucketDropped):
		b.sealing = sealNothing // it is only there to be deleted
	case b.depth == 4 && in.sealing == sealValues && strings.HasSuffix(in.prefix, "\x01"+string(format.BucketIndex)+"\x00"):
		b.sealing = sealNames
	default:
		b.sealing = in.sealing
	}
}

// placed returns a bucket without content that has the encryption of path, to decrypt and
// encrypt entries of another copy of the bucket.
func (tx *Tx) placed(path [][]byte) *Bucket {
	var b *Bucket
	for _, name := range path {
		in := b
		b = &Bucket{tx: tx}
		if in != nil {
			b.depth = in.depth + 1
		}
		if tx.file.cipher != nil {
			b.place(in, name)
		}
	}
	return b
}

// name returns a key as it is in the file.
func (b *Bucket) name(key []byte) []byte {
	if b.sealing < sealAll {
		return key
	}
	return b.tx.file.cipher.sealName(key, b.prefix)
}

// sealed returns a value as it is in the file.
func (b *Bucket) sealed(key, value []byte) []byte {
	if b.sealing == sealNothing || b.sealing == sealNames {
		return value
	}
	return b.tx.file.cipher.seal(value, b.prefix+string(key))
}

// opened returns in clear the value of a key, nil if it has none.
func (b *Bucket) opened(key, value []byte) []byte {
	if b.sealing == sealNothing || b.sealing == sealNames || value == nil {
		return value
	}
	return b.tx.file.cipher.open(value, b.prefix+string(key))
}

// entry returns the key and the value of an entry of the file in clear, and whether the key
// could be decrypted. A value that could not be is empty.
func (b *Bucket) entry(key, value []byte) (k, v []byte, ok bool) {
	k, ok = key, true
	if b.sealing >= sealAll {
		k, ok = b.tx.file.cipher.openName(key, b.prefix)
	}
	return k, b.opened(k, value), ok
}

// Get returns the value of a key, nil if there is none.
func (b *Bucket) Get(key []byte) []byte {
	if b.sealing == sealNothing {
		return b.raw.Get(key)
	}
	return b.opened(key, b.raw.Get(b.name(key)))
}

// Put sets a key.
func (b *Bucket) Put(key, value []byte) error {
	if b.sealing == sealNothing {
		return b.raw.Put(key, value)
	}
	b.change()
	return b.raw.Put(b.name(key), b.sealed(key, value))
}

// Delete removes a key.
func (b *Bucket) Delete(key []byte) error {
	if b.sealing == sealNothing {
		return b.raw.Delete(key)
	}
	b.change()
	return b.raw.Delete(b.name(key))
}

// Cursor goes through the keys in their order.
func (b *Bucket) Cursor() *Cursor {
	c := &Cursor{bucket: b}
	if b.sealing < sealAll {
		c.raw = *b.raw.Cursor()
	}
	return c
}

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
	b.forget(name)
	err := b.raw.DeleteBucket(name)
	if errors.Is(err, berrors.ErrBucketNotFound) {
		return nil
	}
	return err
}

// MoveBucket moves a bucket of this one into another, under the same name. What is in
// it does not become readable there.
func (b *Bucket) MoveBucket(name []byte, to *Bucket) error {
	b.forget(name)
	return b.raw.MoveBucket(name, to.raw)
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

// FillSequentially makes full pages instead of half-full ones, for keys that are put in
// order. Sealed keys never are.
func (b *Bucket) FillSequentially() {
	if b.sealing < sealAll {
		b.raw.FillPercent = sequentialFill
	}
}

// Sequence returns the bucket's sequence.
func (b *Bucket) Sequence() uint64 { return b.raw.Sequence() }

// SetSequence sets the bucket's sequence.
func (b *Bucket) SetSequence(n uint64) error { return b.raw.SetSequence(n) }

// NextSequence increments the bucket's sequence and returns it.
func (b *Bucket) NextSequence() (uint64, error) { return b.raw.NextSequence() }
