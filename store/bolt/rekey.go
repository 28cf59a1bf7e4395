package bolt

import (
	"context"
	"errors"
	"time"
)

// rekeyRetry is the pause after a rewrite that failed, because a list changed the buckets
// meanwhile or the disk was full.
const rekeyRetry = 30 * time.Second

// rekeyDue reports whether the current file is not encrypted with the key of the options.
func (db *DB) rekeyDue() bool { return db.handle.Stats(db.opts.Keys).NeedsRekey }

// rekeyIfDue starts to rewrite the file in the background, at most once for an open database.
func (db locked) rekeyIfDue() {
	if db.rekeying || db.opts.ReadOnly || db.hooks.byHand || !db.rekeyDue() {
		return
	}
	db.rekeying = true
	db.background.start(db.rekey)
}

// rekey compacts until the file is encrypted with the key of the options. A compaction writes
// a new file, which replaces the old one by a rename: no file ever has two keys.
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
			db.opts.Logger.Error("the database can't be rewritten under the key that the configuration names; it stays in use as it is until a retry succeeds", "error", err)
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
