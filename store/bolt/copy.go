package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
	bbolt "go.etcd.io/bbolt"
)

// compactTxBytes is how much one transaction copies: what it has in memory.
const compactTxBytes = 4 << 20

// copier writes the buckets of one file to another. bbolt's own Compact does that too,
// but can't be ended, and goes round for ever in a file whose keys are not in order.
type copier struct {
	ctx  context.Context //nolint:containedctx // of the one call that the copier lives for
	dst  *bbolt.DB
	tx   *bbolt.Tx
	size int // bytes put into tx

	// What a copy that is more than a compaction wants besides; nil for nothing.
	skip func(path [][]byte, name []byte) bool // a bucket that is left out
	look func(path [][]byte, k, v []byte) error
	told func(bytes int) // with each transaction

	// reseal makes another entry of each, in a bucket where they then come in no order;
	// nil to copy them as they are.
	reseal func(path [][]byte, k, v []byte) (key, value []byte)
}

// copyBuckets copies all buckets that src sees, but one, to dst, where there is none.
// Where dst has another cipher, they are sealed with that.
func copyBuckets(ctx context.Context, dst *boltFile, src *fileTx, except []byte) error {
	c := &copier{ctx: ctx, dst: dst.DB}
	if dst.cipher != src.file.cipher {
		c.reseal = resealed(src, dst.tx(nil))
		c.skip = func(path [][]byte, name []byte) bool {
			return len(path) == 3 && bytes.Equal(name, format.BucketDropped)
		}
	}
	defer func() {
		if c.tx != nil {
			_ = c.tx.Rollback()
		}
	}()
	if err := c.begin(); err != nil {
		return err
	}
	err := src.Tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if bytes.Equal(name, except) {
			return nil
		}
		return c.bucket([][]byte{name}, b)
	})
	if err != nil {
		return err
	}
	if c.reseal != nil {
		if err := dst.cipher.sign(dst.tx(c.tx).Bucket(format.BucketMeta)); err != nil {
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
	if c.told != nil {
		c.told(c.size)
	}
	// Values are read from src's file here and no sooner. Where that panics, c.tx is still
	// to be rolled back: it has the lock that closing dst waits for.
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
			return errOrder
		}
		last = k
		if c.size += len(k) + len(v) + pageElement; c.size > compactTxBytes {
			if err := errors.Join(c.commit(), c.begin()); err != nil {
				return err
			}
			to = c.at(path)
		}
		if v != nil {
			if c.look != nil {
				if err := c.look(path, k, v); err != nil {
					return err
				}
			}
			if c.reseal != nil {
				k, v = c.reseal(path, k, v)
			}
			if err := to.Put(k, v); err != nil {
				return err
			}
			continue
		}
		if c.skip != nil && c.skip(path, k) {
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
		b.FillPercent = copyFill
	}
}

// errCopy says that a copy is not what was copied.
var errCopy = errors.New("the copy is not the same")

// sameBuckets compares all that two files have, but for one bucket, entry by entry.
func sameBuckets(ctx context.Context, a, b *bbolt.Tx, except []byte) error {
	return sameEntries(ctx, a.Cursor(), b.Cursor(), a.Bucket, b.Bucket, except)
}

func sameEntries(ctx context.Context, curA, curB *bbolt.Cursor, inA, inB func([]byte) *bbolt.Bucket, except []byte) error {
	ka, va := curA.First()
	kb, vb := curB.First()
	for n := 0; ka != nil || kb != nil; n++ {
		if n%copyRecords == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if except != nil && bytes.Equal(ka, except) {
			ka, va = curA.Next()
			continue
		}
		if !bytes.Equal(ka, kb) || (va == nil) != (vb == nil) || !bytes.Equal(va, vb) {
			return errCopy
		}
		if va == nil {
			a, b := inA(ka), inB(kb)
			if a == nil || b == nil || a.Sequence() != b.Sequence() {
				return errCopy
			}
			if err := sameEntries(ctx, a.Cursor(), b.Cursor(), a.Bucket, b.Bucket, nil); err != nil {
				return err
			}
		}
		ka, va = curA.Next()
		kb, vb = curB.Next()
	}
	return nil
}
