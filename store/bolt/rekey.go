package bolt

import (
	"context"
	"errors"
	"time"

	"github.com/snapcache/snapcache/internal/sleep"
)

// rekeyRetry is the pause after a rewrite under another key that failed, because a list changed the
// buckets meanwhile or the disk was full.
const rekeyRetry = 30 * time.Second

// rekeyer decides when the file is rewritten under the key of the options, and which errors are logged.
type rekeyer struct {
	begun  bool // guarded by the write lock
	failed bool // used only by the goroutine that begin allowed
}

// begin reports whether to begin the rewrite: if it is due, once for an open database.
func (r *rekeyer) begin(due bool) bool {
	begin := due && !r.begun
	r.begun = r.begun || due
	return begin
}

// next returns the step after a try that ended with err: whether the rewrite is done, or else tried
// again after rekeyRetry, and whether to log err. due reports whether the file still has another
// key. Only the first failure is logged; ErrBusy is none.
func (r *rekeyer) next(err error, due bool) (done, logFailure bool) {
	done = err == nil && !due
	logFailure = err != nil && !errors.Is(err, ErrBusy) && !r.failed
	r.failed = r.failed || logFailure
	return done, logFailure
}

// rekeyDue reports whether the current file is not encrypted with the key of the options.
func (db *DB) rekeyDue() bool { return db.handle.Stats(db.opts.Keys).EncryptionDue }

// rekeyIfDue starts to rewrite the file in the background if that is due.
func (db locked) rekeyIfDue() {
	if !db.opts.ReadOnly && db.rekeyer.begin(db.rekeyDue()) {
		db.start(db.rekey)
	}
}

// rekey compacts until the file is encrypted with the key of the options. A compaction writes
// a new file, which replaces the old one by a rename: no file ever has two keys.
func (db *DB) rekey(ctx context.Context) {
	for db.rekeyDue() {
		start := db.opts.Clock.Now()
		_, _, err := db.Compact(ctx)
		if ctx.Err() != nil {
			return
		}
		done, logFailure := db.rekeyer.next(err, db.rekeyDue())
		if done {
			db.opts.Logger.Info("the database was rewritten under the key that the configuration names", "encryption_key", db.Stats().EncryptionKey,
				"took", db.opts.Clock.Since(start).Round(time.Millisecond))
			return
		}
		if logFailure {
			db.opts.Logger.Error("the database can't be rewritten under the key that the configuration names; it stays in use as it is until a retry succeeds", "error", err)
		}
		if sleep.For(ctx, db.opts.Clock, rekeyRetry) != nil {
			return
		}
	}
}
