package boltfile

import (
	"fmt"

	bbolt "go.etcd.io/bbolt"
)

// Tx is a transaction on a file.
type Tx struct {
	raw    *bbolt.Tx
	file   *File
	handle *Handle // to which Rollback releases the file; nil if there is nothing to release
}

// Read is File.Read of the transaction's file.
func (tx *Tx) Read(fn func() error) error { return tx.file.Read(fn) }

// Rollback ends a read transaction. Ending it again does nothing.
func (tx *Tx) Rollback() {
	_ = tx.raw.Rollback() // fails only if it has ended
	if h := tx.handle; h != nil {
		tx.handle = nil
		h.release(tx.file)
	}
}

// File returns the file of the transaction.
func (tx *Tx) File() *File { return tx.file }

// ID returns the number of the transaction, or of the newest one that it sees.
func (tx *Tx) ID() int { return tx.raw.ID() }

// UsedBytes returns the bytes of the file's pages that are in use.
func (tx *Tx) UsedBytes() int64 {
	return max(0, tx.raw.Size()-int64(tx.file.bolt.Stats().FreePageN)*PageSize)
}

// ChangedBytes returns roughly how many bytes the transaction would write: a page for each node in
// memory. Values larger than a page need more.
func (tx *Tx) ChangedBytes() int {
	stats := tx.raw.Stats()
	return int(stats.GetNodeCount()) * PageSize
}

// CheckTree runs bbolt's own check of the file's structure. CheckPages must have found no problem.
func (tx *Tx) CheckTree(report func(error)) {
	for err := range tx.raw.Check() { // to the end: its goroutine waits for the receiver
		report(err)
	}
}

// Bucket returns a bucket at the top, nil if there is none.
func (tx *Tx) Bucket(name []byte) *Bucket { return tx.wrap(nil, name, tx.raw.Bucket(name)) }

// At returns the bucket at a path, nil if there is none.
func (tx *Tx) At(path [][]byte) *Bucket { return tx.Bucket(path[0]).At(path[1:]) }

// ForEachBucket calls fn with the names of the buckets at the top.
func (tx *Tx) ForEachBucket(fn func(name []byte) error) error {
	return tx.raw.ForEach(func(name []byte, _ *bbolt.Bucket) error { return fn(name) })
}

// CreateBucket makes a bucket at the top.
func (tx *Tx) CreateBucket(name []byte) (*Bucket, error) {
	b, err := tx.raw.CreateBucket(name)
	return tx.wrap(nil, name, b), err
}

// CreateBucketIfNotExists makes a bucket at the top unless it exists.
func (tx *Tx) CreateBucketIfNotExists(name []byte) (*Bucket, error) {
	b, err := tx.raw.CreateBucketIfNotExists(name)
	return tx.wrap(nil, name, b), err
}

// DeleteBucket deletes a bucket at the top, which the caller has read. It returns a
// *store.CorruptionError if bbolt does not find the bucket then, or one in it: a corrupt page
// header leads its reader and its writer to different keys.
func (tx *Tx) DeleteBucket(name []byte) error {
	return undeleted(tx.file.path, name, tx.raw.DeleteBucket(name))
}

// undeleted returns the error for a bucket that bbolt could not delete, nil for none. Of a bucket
// that was read, in a transaction that writes, only a corrupt page can be the reason; the errors of
// the buckets in it are only text.
func undeleted(path string, name []byte, err error) error {
	if err == nil {
		return nil
	}
	return corruption(path, fmt.Errorf("bucket %q can't be deleted: %w", name, err))
}

func (tx *Tx) wrap(in *Bucket, name []byte, raw *bbolt.Bucket) *Bucket {
	if raw == nil {
		return nil
	}
	b := &Bucket{tx: tx, raw: raw}
	if in != nil {
		b.depth = in.depth + 1
	}
	if tx.file.cipher != nil {
		b.place(in, name)
	}
	return b
}
