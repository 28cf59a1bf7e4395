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
	// copyTxBytes is how many bytes one transaction copies, and holds in memory.
	copyTxBytes = 4 << 20

	// compareEntries is the number of entries between two checks whether a comparison was
	// cancelled.
	compareEntries = 2000
)

// CopyOptions modify a copy; the zero value copies everything.
type CopyOptions struct {
	Except   []byte                                 // a bucket at the top that is left out
	Skip     func(path [][]byte, name []byte) bool  // reports whether a bucket is left out
	Visit    func(path [][]byte, k, v []byte) error // called with each entry in clear; its error ends the copy
	Progress func(bytes int)                        // called after each transaction
}

// copier writes the buckets of one file to another. bbolt's own Compact does that too, but can't be
// cancelled, and never ends on a file whose keys are not in order.
type copier struct {
	CopyOptions
	ctx   context.Context //nolint:containedctx // the context of the one call that uses the copier
	dst   *File
	tx    *Tx // on dst; nil if none is open
	size  int // bytes put into tx
	rekey bool
}

// CopyBuckets copies the buckets that src sees to dst, which is empty. If dst has another key, it
// encrypts them with that key. It does not stamp dst, see Stamp.
func CopyBuckets(ctx context.Context, dst *File, src *Tx, opts CopyOptions) error {
	return src.Read(func() error { // until the commit, values are read from src's mapping
		return copyBuckets(ctx, dst, src, opts)
	})
}

func copyBuckets(ctx context.Context, dst *File, src *Tx, opts CopyOptions) error {
	c := &copier{CopyOptions: opts, ctx: ctx, dst: dst, rekey: !dst.SameKey(src.file)}
	// If anything panics, c.tx still has the lock that closing dst waits for.
	defer func() {
		if c.tx != nil {
			c.tx.Rollback()
		}
	}()
	if err := c.begin(); err != nil {
		return err
	}
	err := src.raw.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if opts.Except != nil && bytes.Equal(name, opts.Except) {
			return nil
		}
		return c.bucket([][]byte{name}, src.Bucket(name))
	})
	if err != nil {
		return err
	}
	if c.rekey {
		if err := dst.cipher.writeHeader(c.tx.Bucket(format.BucketMeta)); err != nil {
			return err
		}
	}
	return c.commit()
}

func (c *copier) begin() error {
	tx, err := c.dst.bolt.Begin(true)
	if err == nil {
		c.tx, c.size = c.dst.tx(tx), 0
	}
	return err
}

func (c *copier) commit() error {
	if c.Progress != nil {
		c.Progress(c.size)
	}
	err := errors.Join(c.ctx.Err(), c.tx.raw.Commit())
	c.tx = nil
	return err
}

// bucket copies a bucket with its content. path has the names of the buckets around it, and its
// own.
func (c *copier) bucket(path [][]byte, from *Bucket) error {
	to, err := c.create(path, from.Sequence())
	if err != nil {
		return err
	}
	var last []byte
	cur := from.raw.Cursor()
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
			if err := c.entry(path, from, to, k, v); err != nil {
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
		to = c.at(path) // the transaction may be another one now
	}
	return nil
}

// entry copies the entry of k, whose value in the file is v.
func (c *copier) entry(path [][]byte, from, to *Bucket, k, v []byte) error {
	if c.Visit == nil && !c.rekey {
		return to.raw.Put(k, v)
	}
	clear := from.opened(k, v)
	if c.Visit != nil {
		if err := c.Visit(path, k, clear); err != nil {
			return err
		}
	}
	if c.rekey {
		return to.Put(k, clear)
	}
	return to.raw.Put(k, v)
}

func (c *copier) create(path [][]byte, sequence uint64) (b *Bucket, err error) {
	name := path[len(path)-1]
	if len(path) == 1 {
		b, err = c.tx.CreateBucket(name)
	} else {
		b, err = c.at(path[:len(path)-1]).CreateBucket(name)
	}
	if err != nil {
		return nil, err
	}
	b.FillSequentially()
	return b, b.SetSequence(sequence)
}

// at returns a bucket that already exists in the copy.
func (c *copier) at(path [][]byte) *Bucket {
	b := c.tx.At(path)
	b.FillSequentially()
	return b
}

// OpenSuccessor opens a new file at path, which will get the content of f, encrypted with the
// primary key, and take its place.
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

// OpenScratch opens a new file at path, which will get the content of f under the same key. The
// file has no quota and is never synced: it is for a copy whose name is removed, so that no process
// finds it after a crash. This process reads the same bytes without a sync, and a file that is
// deleted soon never reaches the flash.
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
