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

	// walkEntries is the number of entries between two checks whether a walk was cancelled.
	walkEntries = 2000
)

// walk calls visit with each bucket that tx sees and skip does not leave out, in order: first with a
// nil k, then with each entry, whose value is as it is in the file. path includes the bucket's own name.
func (tx *Tx) walk(ctx context.Context, skip SkipFunc, visit func(path [][]byte, b *Bucket, k, v []byte) error) error {
	n := 0
	var walk func(path [][]byte, b *Bucket) error
	inner := func(path [][]byte, name []byte, b *Bucket) error {
		if skip(path, name) {
			return nil
		}
		if b == nil {
			return fmt.Errorf("bucket %q is missing", name)
		}
		return walk(append(path[:len(path):len(path)], name), b)
	}
	walk = func(path [][]byte, b *Bucket) error {
		if err := visit(path, b, nil, nil); err != nil {
			return err
		}
		var last []byte
		cur := b.raw.Cursor()
		for k, v := cur.First(); k != nil; k, v = cur.Next() {
			if last != nil && bytes.Compare(k, last) <= 0 {
				return ErrOrder
			}
			last = k
			if n++; n%walkEntries == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			var err error
			if v != nil {
				err = visit(path, b, k, v)
			} else {
				err = inner(path, k, b.Bucket(k))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return tx.Read(func() error {
		return tx.raw.ForEach(func(name []byte, _ *bbolt.Bucket) error { return inner(nil, name, tx.Bucket(name)) })
	})
}

// SkipFunc reports whether the bucket name in that at path, nil for the top, is left out.
type SkipFunc func(path [][]byte, name []byte) bool

// CopyOptions modify a copy; Visit and Progress may be nil.
type CopyOptions struct {
	Skip     SkipFunc
	Visit    func(path [][]byte, k, v []byte) error // called with each entry in clear; its error ends the copy
	Progress func(bytes int)                        // called after each transaction
}

// copier writes the buckets of one file to another. bbolt's own Compact does that too, but can't be
// cancelled, and never ends on a file whose keys are not in order.
type copier struct {
	CopyOptions
	ctx   context.Context //nolint:containedctx // the context of the one call that uses the copier
	dst   *File
	rekey bool

	tx   *Tx     // on dst; nil if none is open
	size int     // bytes put into tx
	to   *Bucket // the newest bucket that was written to in tx; nil for none
}

// CopyBuckets copies the buckets that src sees to dst, which is empty. If dst has another key, it
// encrypts them with that key. It does not stamp dst, see Stamp.
func CopyBuckets(ctx context.Context, dst *File, src *Tx, opts CopyOptions) error {
	c := &copier{CopyOptions: opts, ctx: ctx, dst: dst, rekey: !dst.SameKey(src.file)}
	// If anything panics, c.tx still has the lock that closing dst waits for.
	defer func() {
		if c.tx != nil {
			c.tx.Rollback()
		}
	}()
	return src.Read(func() error { // until the commit, values are read from src's mapping
		if err := c.begin(); err != nil {
			return err
		}
		if err := src.walk(ctx, opts.Skip, c.copy); err != nil {
			return err
		}
		if c.rekey {
			if err := dst.cipher.writeHeader(c.tx.Bucket(format.BucketMeta)); err != nil {
				return err
			}
		}
		return c.commit()
	})
}

func (c *copier) begin() error {
	tx, err := c.dst.bolt.Begin(true)
	if err == nil {
		c.tx, c.size, c.to = c.dst.tx(tx), 0, nil
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

// copy creates the bucket at path, if k is nil, or copies the entry of k, whose value in the file is v.
func (c *copier) copy(path [][]byte, from *Bucket, k, v []byte) (err error) {
	if c.size += len(k) + len(v) + PageElement; c.size > copyTxBytes {
		if err := errors.Join(c.commit(), c.begin()); err != nil {
			return err
		}
	}
	if k == nil {
		if name := path[len(path)-1]; len(path) == 1 {
			c.to, err = c.tx.CreateBucket(name)
		} else {
			c.to, err = c.tx.At(path[:len(path)-1]).CreateBucket(name)
		}
		if err != nil {
			return err
		}
		c.to.FillSequentially()
		return c.to.SetSequence(from.Sequence())
	}
	if c.to == nil || c.to.depth != from.depth { // another transaction, or after a bucket within this one
		c.to = c.tx.At(path)
		c.to.FillSequentially()
	}
	if c.Visit == nil && !c.rekey {
		return c.to.raw.Put(k, v)
	}
	clear := from.opened(k, v)
	if c.Visit != nil {
		if err := c.Visit(path, k, clear); err != nil {
			return err
		}
	}
	if c.rekey {
		return c.to.Put(k, clear)
	}
	return c.to.raw.Put(k, v)
}

// errNotSame means that a copy differs from its source.
var errNotSame = errors.New("the copy is not the same")

// Compare returns an error unless b is a complete copy of a but for the buckets that skip leaves out.
// If they have different keys, it compares values in clear and leaves out the meta bucket, which
// has the encryption header; otherwise it compares everything as it is in the file.
func Compare(ctx context.Context, a, b *Tx, skip SkipFunc) error {
	rekeyed := !a.file.SameKey(b.file)
	left := func(path [][]byte, name []byte) bool {
		return skip(path, name) || rekeyed && path == nil && bytes.Equal(name, format.BucketMeta)
	}
	more := 0 // entries and buckets that a has and b does not
	var in *Bucket
	err := a.walk(ctx, left, func(path [][]byte, from *Bucket, k, v []byte) error {
		more++
		if k == nil || in.depth != from.depth { // after a bucket within this one
			if in = b.At(path); in == nil || in.Sequence() != from.Sequence() {
				return errNotSame
			}
		}
		if k == nil {
			return nil
		}
		copied := in.raw.Get(k)
		if copied == nil {
			return errNotSame
		}
		if rekeyed {
			v, copied = from.opened(k, v), in.opened(k, copied)
		}
		if !bytes.Equal(v, copied) {
			return errNotSame
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = b.walk(ctx, left, func([][]byte, *Bucket, []byte, []byte) error { more--; return nil })
	if err == nil && more != 0 {
		err = errNotSame
	}
	return err
}

// OpenSuccessor opens a new file at path, which will get the content of f, encrypted with the
// primary key, and take its place.
func (f *File) OpenSuccessor(path string, keys Keyring, opts Options) (*File, error) {
	to, err := openLocal(path, opts)
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
	to, err := openLocal(path, Options{})
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
