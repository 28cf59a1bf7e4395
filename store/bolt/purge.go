package bolt

import (
	"context"
	"fmt"
	"time"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// Purge deletes a collection as Drop does: objects, indexes, history and dictionaries. Free pages of
// the file still have its content until [DB.Sanitize], see SanitizeDue.
func (db *DB) Purge(id string) error { return db.drop(id, true) }

// SanitizeDue reports whether a collection was purged and the file was not rewritten since.
func (db *DB) SanitizeDue() (due bool, err error) {
	err = db.handle.View(func(tx *boltfile.Tx) error { due = sanitizeDue(tx); return nil })
	return due, err
}

func sanitizeDue(tx *boltfile.Tx) bool {
	return tx.Bucket(format.BucketMeta).Get(format.KeySanitize) != nil
}

// Sanitize rewrites the file so that it holds no purged content. It is [DB.Compact] that replaces
// the file even if that saves no space, with the same errors. It does not overwrite the blocks of
// the old file on the disk.
func (db *DB) Sanitize(ctx context.Context) error {
	_, _, err := db.Compact(ctx)
	if err != nil {
		return err
	}
	if due, err := db.SanitizeDue(); err != nil || !due {
		return err
	}
	return fmt.Errorf("sanitize %s: %w", db.path, ErrBusy)
}

// SetForbiddenFor stores how long the API server has forbidden the read of the collection's
// resource, so that the count continues after a restart. 0 removes the value.
func (db *DB) SetForbiddenFor(id string, d time.Duration) error {
	return db.hidden(func(tx *boltfile.Tx) error {
		b := tx.At(format.CollectionPath(id))
		switch {
		case b == nil:
			return nil
		case d == 0:
			return b.Delete(format.KeyForbiddenFor)
		}
		return b.Put(format.KeyForbiddenFor, format.EncodeNumber(id, format.KeyForbiddenFor, uint64(d)))
	})
}

// ForbiddenFor returns the duration that SetForbiddenFor stored, 0 if there is none or it can't
// be decoded.
func (db *DB) ForbiddenFor(id string) (d time.Duration, err error) {
	err = db.handle.View(func(tx *boltfile.Tx) error {
		if b := tx.At(format.CollectionPath(id)); b != nil {
			if n, err := format.DecodeNumber(id, format.KeyForbiddenFor, b.Get(format.KeyForbiddenFor)); err == nil {
				d = time.Duration(min(n, uint64(1<<62))) //nolint:gosec // bounded
			}
		}
		return nil
	})
	return d, err
}
