package bolt

import (
	"bytes"
	"context"
	"errors"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"time"
)

// rekeyRetry is how long a rewriting under another key waits after one that did not
// get to its end, because a list changed the buckets meanwhile or the disk was full.
const rekeyRetry = 30 * time.Second

// rekeyDue says that the file that counts is not encrypted as it is to be.
func (db *DB) rekeyDue() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.file.due(db.opts.Keys)
}

// due says that a file is to be rewritten under another key, or under none.
func (f *boltFile) due(keys Keys) bool {
	if keys.Key == nil {
		return f.cipher != nil
	}
	return f.cipher.keyID() != keys.Key.ID()
}

// successor is the cipher of a file that takes the place of f.
func (f *boltFile) successor(keys Keys) (*fileCipher, error) {
	if f.due(keys) {
		return newFileCipher(keys.Key)
	}
	return f.cipher, nil
}

// considerRekey begins to rewrite the file where it is not encrypted as it is to be.
// The caller holds the write lock.
func (db *DB) considerRekey() {
	if db.rekeying || db.opts.ReadOnly || db.opts.byHand || !db.rekeyDue() {
		return
	}
	db.rekeying = true
	db.background.start(db.rekey)
}

// rekey compacts until the file is encrypted as it is to be. A compaction writes
// another file, and the one from before loses its name: there is no moment at which
// one file has two keys.
func (db *DB) rekey(ctx context.Context) {
	failing := false
	for db.rekeyDue() {
		start := db.opts.Clock.Now()
		_, _, err := db.Compact(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && !db.rekeyDue():
			db.opts.Logger.Info("the database was rewritten under the key that the configuration names", "encryption_key", db.Stats().EncryptionKey,
				"took", db.opts.Clock.Since(start).Round(time.Millisecond))
			return
		case err != nil && !errors.Is(err, ErrBusy) && !failing:
			failing = true
			db.opts.Logger.Error("the database can't be rewritten under the key that the configuration names; it goes on as it is, and it is tried again", "error", err)
		}
		timer := db.opts.Clock.NewTimer(rekeyRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// resealed returns what makes entries of one file those of another.
func resealed(src, dst *fileTx) func(path [][]byte, k, v []byte) (key, value []byte) {
	return func(path [][]byte, k, v []byte) (key, value []byte) {
		k, v, _ = src.at(path).entry(k, v)
		to := dst.at(path)
		return to.name(k), to.sealed(k, v)
	}
}

// sameContent compares what two files have, but for the top buckets meta and journal,
// whatever each of them is encrypted with.
func sameContent(ctx context.Context, src, dst *fileTx) error {
	for _, name := range [][]byte{format.BucketDict, format.BucketCollections} {
		if err := sameOpened(ctx, src.Bucket(name), dst.Bucket(name)); err != nil {
			return err
		}
	}
	return nil
}

func sameOpened(ctx context.Context, a, b *fileBucket) error {
	if a == nil || b == nil || a.Sequence() != b.Sequence() {
		return errCopy
	}
	count := 0
	cur := a.raw.Cursor()
	for rawKey, rawValue := cur.First(); rawKey != nil; rawKey, rawValue = cur.Next() {
		if count++; count%copyRecords == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		k, v, _ := a.entry(rawKey, rawValue)
		if v == nil {
			if a.depth == 2 && bytes.Equal(k, format.BucketDropped) {
				count-- // left out: what is dropped is not to be read, and can't be sealed
				continue
			}
			if err := sameOpened(ctx, a.Bucket(k), b.Bucket(k)); err != nil {
				return err
			}
			continue
		}
		if other := b.Get(k); other == nil || !bytes.Equal(other, v) {
			return errCopy
		}
	}
	if !b.fewerThan(count + 1) {
		return errCopy
	}
	return ctx.Err()
}
