package boltfile

import (
	"bytes"
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// errNotSame means that a copy differs from its source.
var errNotSame = errors.New("the copy is not the same")

// Compare returns an error unless b is a complete copy of a but for the bucket except. If
// they have different keys, it compares values in clear and leaves out the meta bucket, which
// has the encryption header; otherwise it compares everything as it is in the file.
func Compare(ctx context.Context, a, b *Tx, except []byte) error {
	return a.Read(func() error {
		rekeyed := !a.file.SameKey(b.file)
		others := map[string]bool{} // top-level buckets of b not yet found in a
		err := b.raw.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			others[string(name)] = true
			return nil
		})
		if err != nil {
			return err
		}
		err = a.raw.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			delete(others, string(name))
			if bytes.Equal(name, except) || rekeyed && bytes.Equal(name, format.BucketMeta) {
				return nil
			}
			return same(ctx, a.Bucket(name), b.Bucket(name), rekeyed)
		})
		if err == nil && len(others) > 0 {
			err = errNotSame
		}
		return err
	})
}

// same compares two buckets entry by entry: values as they are in the file or, if rekeyed, in
// clear.
func same(ctx context.Context, a, b *Bucket, rekeyed bool) error {
	if a == nil || b == nil || a.Sequence() != b.Sequence() {
		return errNotSame
	}
	curA, curB := a.raw.Cursor(), b.raw.Cursor()
	ka, va := curA.First()
	kb, vb := curB.First()
	for n := 0; ka != nil || kb != nil; n++ {
		if n%compareEntries == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if !bytes.Equal(ka, kb) || (va == nil) != (vb == nil) {
			return errNotSame
		}
		if va == nil {
			if err := same(ctx, a.Bucket(ka), b.Bucket(kb), rekeyed); err != nil {
				return err
			}
		}
		if rekeyed {
			va, vb = a.opened(ka, va), b.opened(kb, vb)
		}
		if !bytes.Equal(va, vb) {
			return errNotSame
		}
		ka, va = curA.Next()
		kb, vb = curB.Next()
	}
	return nil
}
