package bolt

import (
	"os"
	"strings"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
	bbolt "go.etcd.io/bbolt"
)

// boltFile is an open bbolt file. What this package reads and writes of a file, it
// does through the transactions of a boltFile: they seal what is written and open what
// is read, where the file is encrypted, so that nobody else has to know.
type boltFile struct {
	*bbolt.DB
	raw    *os.File    // that bbolt has open
	cipher *fileCipher // nil for a file in clear
	orders orders
}

// View runs fn in a transaction that reads.
func (f *boltFile) View(fn func(*fileTx) error) error {
	return f.DB.View(func(tx *bbolt.Tx) error { return fn(f.tx(tx)) })
}

// Update runs fn in a transaction that writes.
func (f *boltFile) Update(fn func(*fileTx) error) error {
	return f.DB.Update(func(tx *bbolt.Tx) error { return fn(f.tx(tx)) })
}

// Begin begins a transaction, which the caller ends.
func (f *boltFile) Begin(writable bool) (*fileTx, error) {
	tx, err := f.DB.Begin(writable)
	if err != nil {
		return nil, err
	}
	return f.tx(tx), nil
}

func (f *boltFile) tx(tx *bbolt.Tx) *fileTx { return &fileTx{Tx: tx, file: f} }

// fileTx is a transaction on a file. It has what the package uses of a bbolt.Tx;
// Tx itself is for what copies a file as it is.
type fileTx struct {
	*bbolt.Tx
	file    *boltFile
	changed map[string]bool // buckets with sealed names, by prefix; not those in clear
}

// Bucket returns a bucket at the top, nil where there is none.
func (tx *fileTx) Bucket(name []byte) *fileBucket { return tx.wrap(nil, name, tx.Tx.Bucket(name)) }

// CreateBucket makes a bucket at the top.
func (tx *fileTx) CreateBucket(name []byte) (*fileBucket, error) {
	b, err := tx.Tx.CreateBucket(name)
	return tx.wrap(nil, name, b), err
}

// CreateBucketIfNotExists makes a bucket at the top unless it is there.
func (tx *fileTx) CreateBucketIfNotExists(name []byte) (*fileBucket, error) {
	b, err := tx.Tx.CreateBucketIfNotExists(name)
	return tx.wrap(nil, name, b), err
}

// wrap makes a bucket of ours of one of bbolt's.
func (tx *fileTx) wrap(in *fileBucket, name []byte, raw *bbolt.Bucket) *fileBucket {
	if raw == nil {
		return nil
	}
	b := &fileBucket{tx: tx, raw: raw}
	if in != nil {
		b.depth = in.depth + 1
	}
	if tx.file.cipher != nil {
		b.place(in, name)
	}
	return b
}

// sealing is what of a bucket is encrypted.
type sealing int

const (
	sealNothing sealing = iota
	sealValues
	sealAll   // names as well
	sealNames // of entries without values
)

// fileBucket is a bucket of a file in a transaction.
type fileBucket struct {
	tx  *fileTx
	raw *bbolt.Bucket // as bbolt has it

	sealing sealing
	depth   int    // how many buckets it is in
	prefix  string // of its addresses; only in an encrypted file
}

// place notes where in an encrypted file the bucket is.
func (b *fileBucket) place(in *fileBucket, name []byte) {
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

// at returns what there is in an encrypted file at a path, to open what was read
// there in another way.
func (tx *fileTx) at(path [][]byte) *fileBucket {
	var b *fileBucket
	for _, name := range path {
		in := b
		b = &fileBucket{tx: tx}
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
func (b *fileBucket) name(key []byte) []byte {
	if b.sealing < sealAll {
		return key
	}
	return b.tx.file.cipher.sealName(key, b.prefix)
}

// sealed returns a value as it is in the file.
func (b *fileBucket) sealed(key, value []byte) []byte {
	if b.sealing == sealNothing || b.sealing == sealNames {
		return value
	}
	return b.tx.file.cipher.seal(value, b.prefix+string(key))
}

// opened returns the value of a key, nil where it has none.
func (b *fileBucket) opened(key, value []byte) []byte {
	if b.sealing == sealNothing || b.sealing == sealNames || value == nil {
		return value
	}
	return b.tx.file.cipher.open(value, b.prefix+string(key))
}

// entry returns key and value of what is in the file, and whether the key could be
// opened. A value that could not be is empty.
func (b *fileBucket) entry(key, value []byte) (k, v []byte, ok bool) {
	k, ok = key, true
	if b.sealing >= sealAll {
		k, ok = b.tx.file.cipher.openName(key, b.prefix)
	}
	return k, b.opened(k, value), ok
}

// Get returns the value of a key, nil where there is none.
func (b *fileBucket) Get(key []byte) []byte {
	if b.sealing == sealNothing {
		return b.raw.Get(key)
	}
	return b.opened(key, b.raw.Get(b.name(key)))
}

// Put sets a key.
func (b *fileBucket) Put(key, value []byte) error {
	if b.sealing == sealNothing {
		return b.raw.Put(key, value)
	}
	b.change()
	return b.raw.Put(b.name(key), b.sealed(key, value))
}

// Delete removes a key.
func (b *fileBucket) Delete(key []byte) error {
	if b.sealing == sealNothing {
		return b.raw.Delete(key)
	}
	b.change()
	return b.raw.Delete(b.name(key))
}

// Cursor goes through the keys in their order.
func (b *fileBucket) Cursor() *fileCursor {
	c := &fileCursor{bucket: b}
	if b.sealing < sealAll {
		c.raw = *b.raw.Cursor()
	}
	return c
}

// Bucket returns a bucket in this one, nil where there is none.
func (b *fileBucket) Bucket(name []byte) *fileBucket { return b.tx.wrap(b, name, b.raw.Bucket(name)) }

// CreateBucket makes a bucket in this one.
func (b *fileBucket) CreateBucket(name []byte) (*fileBucket, error) {
	raw, err := b.raw.CreateBucket(name)
	return b.tx.wrap(b, name, raw), err
}

// CreateBucketIfNotExists makes a bucket in this one unless it is there.
func (b *fileBucket) CreateBucketIfNotExists(name []byte) (*fileBucket, error) {
	raw, err := b.raw.CreateBucketIfNotExists(name)
	return b.tx.wrap(b, name, raw), err
}

// DeleteBucket deletes a bucket in this one.
func (b *fileBucket) DeleteBucket(name []byte) error {
	b.forget(name)
	return b.raw.DeleteBucket(name)
}

// MoveBucket moves a bucket of this one into another, under the same name. What is in
// it does not become readable there.
func (b *fileBucket) MoveBucket(name []byte, to *fileBucket) error {
	b.forget(name)
	return b.raw.MoveBucket(name, to.raw)
}

// ForEachBucket calls fn with the names of the buckets in this one.
func (b *fileBucket) ForEachBucket(fn func(name []byte) error) error { return b.raw.ForEachBucket(fn) }

// fewerThan says whether the bucket has fewer than n keys.
func (b *fileBucket) fewerThan(n int) bool {
	cur := b.raw.Cursor()
	for k, _ := cur.First(); k != nil; k, _ = cur.Next() {
		if n--; n <= 0 {
			return false
		}
	}
	return true
}

// fillUp says that keys come in order: full pages instead of half-full ones. Sealed
// ones never do.
func (b *fileBucket) fillUp() {
	if b.sealing < sealAll {
		b.raw.FillPercent = copyFill
	}
}

// Sequence returns the bucket's sequence.
func (b *fileBucket) Sequence() uint64 { return b.raw.Sequence() }

// SetSequence sets the bucket's sequence.
func (b *fileBucket) SetSequence(n uint64) error { return b.raw.SetSequence(n) }

// NextSequence counts the bucket's sequence up.
func (b *fileBucket) NextSequence() (uint64, error) { return b.raw.NextSequence() }

// fileCursor goes through the keys of a bucket, in their order.
type fileCursor struct {
	bucket *fileBucket
	raw    bbolt.Cursor // of a bucket whose names are not sealed

	keys []string // of one whose names are; nil until it is asked for
	at   int
}

// First moves to the first key.
func (c *fileCursor) First() (key, value []byte) {
	if c.bucket.sealing >= sealAll {
		return c.Seek(nil)
	}
	return c.opened(c.raw.First())
}

// Next moves to the next key.
func (c *fileCursor) Next() (key, value []byte) {
	if c.bucket.sealing >= sealAll {
		c.at++
		return c.current()
	}
	return c.opened(c.raw.Next())
}

// Seek moves to the first key that is not before key.
func (c *fileCursor) Seek(key []byte) (k, value []byte) {
	if c.bucket.sealing >= sealAll {
		return c.seekSealed(string(key))
	}
	return c.opened(c.raw.Seek(key))
}

func (c *fileCursor) opened(k, v []byte) (key, value []byte) {
	if c.bucket.sealing == sealNothing {
		return k, v
	}
	return k, c.bucket.opened(k, v)
}
