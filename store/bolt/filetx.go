package bolt

import bbolt "go.etcd.io/bbolt"

// boltFile is an open bbolt file. What this package reads and writes of a file, it
// does through the transactions of a boltFile.
type boltFile struct {
	*bbolt.DB
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

func (f *boltFile) tx(tx *bbolt.Tx) *fileTx { return &fileTx{Tx: tx} }

// fileTx is a transaction on a file. It has what the package uses of a bbolt.Tx;
// Tx itself is for what copies a file as it is.
type fileTx struct{ *bbolt.Tx }

// Bucket returns a bucket at the top, nil where there is none.
func (tx *fileTx) Bucket(name []byte) *fileBucket { return tx.wrap(tx.Tx.Bucket(name)) }

// CreateBucket makes a bucket at the top.
func (tx *fileTx) CreateBucket(name []byte) (*fileBucket, error) {
	b, err := tx.Tx.CreateBucket(name)
	return tx.wrap(b), err
}

// CreateBucketIfNotExists makes a bucket at the top unless it is there.
func (tx *fileTx) CreateBucketIfNotExists(name []byte) (*fileBucket, error) {
	b, err := tx.Tx.CreateBucketIfNotExists(name)
	return tx.wrap(b), err
}

func (tx *fileTx) wrap(b *bbolt.Bucket) *fileBucket {
	if b == nil {
		return nil
	}
	return &fileBucket{tx: tx, raw: b}
}

// fileBucket is a bucket of a file in a transaction.
type fileBucket struct {
	tx  *fileTx
	raw *bbolt.Bucket // as bbolt has it
}

// Get returns the value of a key, nil where there is none.
func (b *fileBucket) Get(key []byte) []byte { return b.raw.Get(key) }

// Put sets a key.
func (b *fileBucket) Put(key, value []byte) error { return b.raw.Put(key, value) }

// Delete removes a key.
func (b *fileBucket) Delete(key []byte) error { return b.raw.Delete(key) }

// Cursor goes through the keys in their order.
func (b *fileBucket) Cursor() *fileCursor { return &fileCursor{*b.raw.Cursor()} }

// Bucket returns a bucket in this one, nil where there is none.
func (b *fileBucket) Bucket(name []byte) *fileBucket { return b.tx.wrap(b.raw.Bucket(name)) }

// CreateBucket makes a bucket in this one.
func (b *fileBucket) CreateBucket(name []byte) (*fileBucket, error) {
	in, err := b.raw.CreateBucket(name)
	return b.tx.wrap(in), err
}

// CreateBucketIfNotExists makes a bucket in this one unless it is there.
func (b *fileBucket) CreateBucketIfNotExists(name []byte) (*fileBucket, error) {
	in, err := b.raw.CreateBucketIfNotExists(name)
	return b.tx.wrap(in), err
}

// DeleteBucket deletes a bucket in this one.
func (b *fileBucket) DeleteBucket(name []byte) error { return b.raw.DeleteBucket(name) }

// MoveBucket moves a bucket of this one into another, under the same name.
func (b *fileBucket) MoveBucket(name []byte, to *fileBucket) error {
	return b.raw.MoveBucket(name, to.raw)
}

// ForEachBucket calls fn with the names of the buckets in this one.
func (b *fileBucket) ForEachBucket(fn func(name []byte) error) error { return b.raw.ForEachBucket(fn) }

// fillUp says that keys come in order: full pages instead of half-full ones.
func (b *fileBucket) fillUp() { b.raw.FillPercent = copyFill }

// Sequence returns the bucket's sequence.
func (b *fileBucket) Sequence() uint64 { return b.raw.Sequence() }

// SetSequence sets the bucket's sequence.
func (b *fileBucket) SetSequence(n uint64) error { return b.raw.SetSequence(n) }

// NextSequence counts the bucket's sequence up.
func (b *fileBucket) NextSequence() (uint64, error) { return b.raw.NextSequence() }

// fileCursor goes through the keys of a bucket, in their order.
type fileCursor struct{ raw bbolt.Cursor }

// First moves to the first key.
func (c *fileCursor) First() (key, value []byte) { return c.raw.First() }

// Next moves to the next key.
func (c *fileCursor) Next() (key, value []byte) { return c.raw.Next() }

// Seek moves to the first key that is not before key.
func (c *fileCursor) Seek(key []byte) (k, value []byte) { return c.raw.Seek(key) }
