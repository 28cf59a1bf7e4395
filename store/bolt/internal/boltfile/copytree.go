package boltfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

const (
	// copyTxBytes is how much one transaction copies: what it has in memory.
	copyTxBytes = 4 << 20

	// compareEntries is after how many entries a comparison looks whether it was cancelled.
	compareEntries = 2000
)

// CopyOptions are what a copy does besides copying; the zero value is for nothing.
type CopyOptions struct {
	Except   []byte                                   // a bucket at the top that is left out
	Skip     func(path [][]byte, name []byte) bool    // reports whether a bucket is left out
	Visit    func(path [][]byte, e CopiedEntry) error // looks at an entry; its error ends the copy
	Progress func(bytes int)                          // called with each transaction
}

// CopiedEntry is an entry of a bucket, in clear.
type CopiedEntry struct {
	Key, Value []byte
	KeyOpened  bool // false if the file is encrypted and the key could not be decrypted
}

// copier writes the buckets of one file to another. bbolt's own Compact does that too,
// but can't be cancelled, and goes round for ever in a file whose keys are not in order.
type copier struct {
	CopyOptions
	ctx  context.Context //nolint:containedctx // of the one call that the copier lives for
	src  *Tx
	dst  *bbolt.DB
	tx   *bbolt.Tx
	size int // bytes put into tx

	// reseal makes another entry of each, in a bucket in which they then come in no order;
	// nil to copy them as they are.
	reseal func(path [][]byte, k, v []byte) (key, value []byte)
}

// CopyBuckets copies the buckets that src sees to dst, which is empty. If dst has another
// key, they are encrypted with that. It does not stamp dst, see Stamp.
func CopyBuckets(ctx context.Context, dst *File, src *Tx, opts CopyOptions) error {
	return src.Read(func() error { // Values are read from src's file as late as in commit
		return copyBuckets(ctx, dst, src, opts)
	})
}

func copyBuckets(ctx context.Context, dst *File, src *Tx, opts CopyOptions) error {
	c := &copier{CopyOptions: opts, ctx: ctx, src: src, dst: dst.bolt}
	if dst.cipher != src.file.cipher {
		c.reseal = func(path [][]byte, k, v []byte) (key, value []byte) {
			k, v, _ = src.placed(path).entry(k, v)
			to := dst.tx(nil).placed(path)
			return to.name(k), to.sealed(k, v)
		}
		c.Skip = func(path [][]byte, name []byte) bool {
			return len(path) == 3 && bytes.Equal(name, format.BucketDropped) || opts.Skip != nil && opts.Skip(path, name)
		}
	}
	// If anything panics, c.tx still has the lock that closing dst waits for.
	defer func() {
		if c.tx != nil {
			_ = c.tx.Rollback()
		}
	}()
	if err := c.begin(); err != nil {
		return err
	}
	err := src.raw.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if opts.Except != nil && bytes.Equal(name, opts.Except) {
			return nil
		}
		return c.bucket([][]byte{name}, b)
	})
	if err != nil {
		return err
	}
	if c.reseal != nil {
		if err := dst.cipher.writeHeader(dst.tx(c.tx).Bucket(format.BucketMeta)); err != nil {
			return err
		}
	}
	return c.commit()
}

func (c *copier) begin() (err error) {
	c.tx, err = c.dst.Begin(true)
	c.size = 0
	return err
}

func (c *copier) commit() error {
	if c.Progress != nil {
		c.Progress(c.size)
	}
	err := errors.Join(c.ctx.Err(), c.tx.Commit())
	c.tx = nil
	return err
}

// bucket copies a bucket with all that is in it. path is its name, and those of the
// buckets that it is in.
func (c *copier) bucket(path [][]byte, from *bbolt.Bucket) error {
	to, err := c.create(path, from.Sequence())
	if err != nil {
		return err
	}
	var last []byte
	cur := from.Cursor()
	for k, v := cur.First(); k != nil; k, v = cur.Next() {
		if last != nil && bytes.Compare(k, last) <= 0 {
			return ErrOrder
		}
		last = k
		if c.size += len(k) + len(v) + PageElement; c.size > copyTxBytes {
			if err := errors.Join(c.commit(), c.begin()); err != nil {
				return err
			}
			to = c.at(path)
		}
		if v != nil {
			if err := c.visit(path, k, v); err != nil {
				return err
			}
			if c.reseal != nil {
				k, v = c.reseal(path, k, v)
			}
			if err := to.Put(k, v); err != nil {
				return err
			}
			continue
		}
		if c.Skip != nil && c.Skip(path, k) {
			continue
		}
		inner := from.Bucket(k)
		if inner == nil {
			return fmt.Errorf("bucket %q is missing", k)
		}
		if err := c.bucket(append(path[:len(path):len(path)], k), inner); err != nil {
			return err
		}
		to = c.at(path) // perhaps in another transaction
	}
	return nil
}

func (c *copier) create(path [][]byte, sequence uint64) (b *bbolt.Bucket, err error) {
	name := path[len(path)-1]
	if len(path) == 1 {
		b, err = c.tx.CreateBucket(name)
	} else {
		b, err = c.at(path[:len(path)-1]).CreateBucket(name)
	}
	if err != nil {
		return nil, err
	}
	c.fill(b)
	return b, b.SetSequence(sequence)
}

// at returns a bucket that was created before.
func (c *copier) at(path [][]byte) *bbolt.Bucket {
	b := c.tx.Bucket(path[0])
	for _, name := range path[1:] {
		b = b.Bucket(name)
	}
	c.fill(b)
	return b
}

func (c *copier) fill(b *bbolt.Bucket) {
	if c.reseal == nil {
		b.FillPercent = sequentialFill
	}
}

// visit calls Visit with an entry in clear.
func (c *copier) visit(path [][]byte, k, v []byte) error {
	if c.Visit == nil {
		return nil
	}
	e := CopiedEntry{Key: k, Value: v, KeyOpened: true}
	if c.src.file.cipher != nil {
		e.Key, e.Value, e.KeyOpened = c.src.placed(path).entry(k, v)
	}
	return c.Visit(path, e)
}

// OpenSuccessor opens a new file at path, which is to get the content of f and to take its
// place, under the key of keys.
func (f *File) OpenSuccessor(path string, keys Keyring, opts Options) (*File, error) {
	to, err := Open(path, opts)
	if err != nil {
		return nil, err
	}
	to.cipher = f.cipher
	if f.NeedsRekey(keys) {
		if to.cipher, err = newFileCipher(keys.Primary); err != nil {
			return nil, errors.Join(err, to.Close())
		}
	}
	return to, nil
}

// OpenScratch opens a new file at path, which is to get the content of f under the same key.
// It has no quota, and is never synced: it is for a file that has no name to be found by
// after a crash. Synced or not it has the same bytes for this process, and a file that is
// deleted soon enough never gets to the flash.
func (f *File) OpenScratch(path string) (*File, error) {
	to, err := Open(path, Options{})
	if err != nil {
		return nil, err
	}
	to.cipher = f.cipher
	to.bolt.NoSync, to.bolt.NoGrowSync = true, true
	return to, nil
}

// SameKey reports whether two files have the same cipher, key and salt, or are both in clear. Only
// a copy has the cipher of another file: files that were opened separately differ even with the
// same key and salt.
func (f *File) SameKey(other *File) bool { return f.cipher == other.cipher }
