package boltfile

import (
	"bytes"
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// errNotSame is the error for a copy that differs from its source.
var errNotSame = errors.New("the copy is not the same")

// Compare returns an error unless b is a complete copy of a but for the bucket except. If
// they have different keys, it compares dictionaries and collections in clear; otherwise
// everything, as it is in the file.
func Compare(ctx context.Context, a, b *Tx, except []byte) error {
	return a.Read(func() error {
		if a.file.SameKey(b.file) {
			return sameEntries(ctx, a.raw.Cursor(), b.raw.Cursor(), a.raw.Bucket, b.raw.Bucket, except)
		}
		for _, name := range [][]byte{format.BucketDict, format.BucketCollections} {
			if err := sameOpened(ctx, a.Bucket(name), b.Bucket(name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// sameEntries compares two buckets, but for one bucket in them, entry by entry as they are
// in the file.
func sameEntries(ctx context.Context, curA, curB *bbolt.Cursor, inA, inB func([]byte) *bbolt.Bucket, except []byte) error {
	ka, va := curA.First()
	kb, vb := curB.First()
	for n := 0; ka != nil || kb != nil; n++ {
		if n%compareEntries == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if except != nil && bytes.Equal(ka, except) {
			ka, va = curA.Next()
			continue
		}
		if !bytes.Equal(ka, kb) || (va == nil) != (vb == nil) || !bytes.Equal(va, vb) {
			return errNotSame
		}
		if va == nil {
			a, b := inA(ka), inB(kb)
			if a == nil || b == nil || a.Sequence() != b.Sequence() {
				return errNotSame
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

// sameOpened compares two buckets in clear.
func sameOpened(ctx context.Context, a, b *Bucket) error {
	if a == nil || b == nil || a.Sequence() != b.Sequence() {
		return errNotSame
	}
	count := 0
	cur := a.raw.Cursor()
	for rawKey, rawValue := cur.First(); rawKey != nil; rawKey, rawValue = cur.Next() {
		if count++; count%compareEntries == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		k, v, _ := a.entry(rawKey, rawValue)
		if v == nil {
			if a.depth == 2 && bytes.Equal(k, format.BucketDropped) {
				count-- // left out: it is only there to be deleted, and its entries can't be encrypted
				continue
			}
			if err := sameOpened(ctx, a.Bucket(k), b.Bucket(k)); err != nil {
				return err
			}
			continue
		}
		if other := b.Get(k); other == nil || !bytes.Equal(other, v) {
			return errNotSame
		}
	}
	if !b.FewerThan(count + 1) {
		return errNotSame
	}
	return ctx.Err()
}
