package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// These constants decide when a database compacts itself. A compaction costs flash writes: it
// writes all pages in use once. It gains disk space, which matters only if there is much of it.
const (
	// compactMinFree is how many bytes must be free in the file.
	compactMinFree = 16 << 20

	// compactFreeFactor is how many bytes must be free for each byte in use. A relist that fills a
	// new generation leaves as much free as is in use, and the next relist uses that again.
	compactFreeFactor = 2

	// compactEvery is the least time between two compactions.
	compactEvery = 24 * time.Hour

	// compactRetry is the pause after a compaction that failed.
	compactRetry = time.Hour

	// compactSpare is how many bytes of disk a compaction leaves free for concurrent writes.
	compactSpare = 16 << 20
)

// ErrBusy is the error of a compaction that ended because the buckets of the file changed
// meanwhile, for example by a list. It may be tried again.
var ErrBusy = errors.New("the buckets of the file are being changed")

// Compact rewrites the file of an open database without its free space, and returns the file's
// size in bytes before and after. If the new file is not smaller, the old one stays, unless the
// file is to be encrypted with another key or sanitized.
//
// The buckets are copied to a file beside the old one, under path + ".compact", while readers
// and writers go on: changes stay in memtable and journal, and folds wait. If a transaction
// changes the buckets meanwhile, the compaction ends with ErrBusy. Then, while writers wait,
// the journal is copied, the new file is synced, and a rename puts it in the place of the old
// one. A crash at any moment leaves one complete file under the name, with all that was
// flushed; the next opening removes the other.
//
// Open views keep reading the old file, whose space is free when the last of them is closed. On
// an error, such as ErrNoRoom, the old file stays in use unchanged. There is one exception: if
// the sync of the directory after the rename fails, Compact returns that error although the new
// file is in use; nothing is durable then until a retry of the sync succeeds.
func (db *DB) Compact(ctx context.Context) (before, after int64, err error) {
	if db.opts.ReadOnly {
		return 0, 0, errors.New("compact: the database is open for reading only")
	}
	if !db.background.enter() {
		return 0, 0, fmt.Errorf("compact %s: %w", db.path, store.ErrClosed)
	}
	defer db.background.leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(db.background.ctx, cancel)()
	start := db.opts.Clock.Now()
	c := &compaction{db: db}
	before, after, err = c.run(ctx)
	if c.renamed {
		db.compactor.count.Add(1)
		db.compactor.took.Add(int64(db.opts.Clock.Since(start)))
		db.compactor.saved.Add(before - after)
	}
	if err != nil {
		if db.handle.Closed() || db.background.ctx.Err() != nil {
			err = store.ErrClosed
		}
		return before, after, fmt.Errorf("compact %s: %w", db.path, err)
	}
	return before, after, nil
}

// compactor decides when a database compacts itself, and counts compactions.
type compactor struct {
	running   bool      // guarded by the write lock: folds and builds wait meanwhile
	notBefore time.Time // guarded by the write lock

	count atomic.Int64
	took  atomic.Int64 // nanoseconds
	saved atomic.Int64 // bytes by which the file became smaller
}

// due reports whether a compaction is worth its writes and the previous one is long enough ago.
// size is the file's, free its unused bytes. minFree is compactMinFree, except in tests.
func (c *compactor) due(now time.Time, size, free, minFree int64) bool {
	return !c.running && !now.Before(c.notBefore) && free >= minFree && free >= compactFreeFactor*(size-free)
}

// compactStep is a moment in a compaction, in which tests inspect it or make it fail.
type compactStep string

const (
	stepBegun  compactStep = "begun"  // the new file exists, and is empty
	stepCopied compactStep = "copied" // it has all but the journal
	stepSynced compactStep = "synced" // it has the journal too, and is synced
	stepNamed  compactStep = "named"  // it has the database's name
)

// compaction is one rewrite of an open database.
type compaction struct {
	db         *DB
	old        *boltfile.File
	src        *boltfile.Tx // of old; nil once it has ended
	epoch      uint64       // of old, when src began
	uncertainN int          // the committer's count of uncertain commits, when src began
	dst        *boltfile.File
	path       string // of the file itself, if the database's is a link
	renamed    bool
}

func (c *compaction) run(ctx context.Context) (before, after int64, err error) {
	db := c.db
	if c.path, err = filepath.EvalSymlinks(db.path); err != nil {
		return 0, 0, err
	}
	defer c.end()
	if err := c.begin(); err != nil {
		return 0, 0, err
	}
	before, free, err := db.sizes()
	if err != nil {
		return before, before, err
	}
	if err := checkFreeSpace(filepath.Dir(c.path), before-free+boltfile.AllocBytes+compactSpare, db.hooks.freeDisk); err != nil {
		return before, before, err
	}
	tmp := c.path + compactSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return before, before, err
	}
	if c.dst, err = c.old.OpenSuccessor(tmp, db.opts.Keys, db.opts.file()); err != nil {
		return before, before, errors.Join(err, os.RemoveAll(tmp))
	}
	if err = db.hooks.compactStep(stepBegun); err == nil {
		err = c.copy(ctx, tmp)
	}
	if err == nil {
		err = db.hooks.compactStep(stepCopied)
	}
	if err == nil {
		after, err = c.finish(tmp, before)
	}
	if !c.renamed {
		return before, before, errors.Join(err, c.dst.Close(), os.Remove(tmp))
	}
	return before, after, err
}

// begin acquires the current file, begins a read transaction on it and makes folds and builds
// wait. It takes the write lock.
func (c *compaction) begin() error {
	db := c.db.lock()
	defer db.unlock()
	if db.handle.Closed() {
		return store.ErrClosed
	}
	if db.compactor.running {
		return ErrBusy
	}
	f, err := db.handle.Acquire()
	if err != nil {
		return err
	}
	if c.src, err = f.Begin(); err != nil {
		db.handle.Release(f)
		return err
	}
	c.old, c.uncertainN = f, db.committer.UncertainCommits()
	db.compactor.running = true
	return c.src.Read(func() error { c.epoch = boltfile.Epoch(c.src); return nil })
}

// end releases the file, if begin has acquired it, and wakes the builds. It takes the write
// lock.
func (c *compaction) end() {
	if c.old == nil {
		return
	}
	c.endRead()
	c.db.handle.Release(c.old)
	db := c.db.lock()
	defer db.unlock()
	db.compactor.running = false
	db.indexer.wake()
}

func (c *compaction) endRead() {
	if c.src != nil {
		c.src.Rollback()
		c.src = nil
	}
}

// copy copies all but the journal to the new file, and compares the two.
func (c *compaction) copy(ctx context.Context, tmp string) error {
	like, err := c.old.Stat()
	if err != nil {
		return err
	}
	if err := boltfile.ChownLike(tmp, like); err != nil {
		return fmt.Errorf("give the new file to the owner of the old one: %w", err)
	}
	if err := boltfile.CopyBuckets(ctx, c.dst, c.src, boltfile.CopyOptions{Except: format.BucketJournal}); err != nil {
		return err
	}
	err = c.dst.View(func(tx *boltfile.Tx) error { return boltfile.Compare(ctx, c.src, tx, format.BucketJournal) })
	c.endRead() // an open read transaction makes the old file grow with each flush
	return err
}

// finish copies the journal and puts the new file in the old one's place, under the write lock.
// It returns ErrBusy if the buckets have changed or a commit became uncertain since begin.
func (c *compaction) finish(tmp string, before int64) (after int64, err error) {
	db := c.db.lock()
	defer db.unlock()
	var epoch uint64
	switch err := db.view(func(tx *boltfile.Tx) error { epoch = boltfile.Epoch(tx); return nil }); {
	case err != nil:
		return before, err
	case epoch != c.epoch, db.committer.UncertainCommits() != c.uncertainN:
		return before, ErrBusy
	}
	if err := c.stillNamed(); err != nil {
		return before, err
	}
	scrubs := false
	err = c.old.View(func(src *boltfile.Tx) error {
		scrubs = sanitizeDue(src)
		return c.dst.Update(func(dst *boltfile.Tx) error {
			return errors.Join(writeback.CopyJournal(dst, src), dst.Bucket(format.BucketMeta).Delete(format.KeySanitize), boltfile.Stamp(dst, false))
		})
	})
	if err = errors.Join(err, c.dst.Sync()); err != nil {
		return before, err
	}
	info, err := c.dst.Stat()
	if err != nil {
		return before, err
	}
	if after = info.Size(); after >= before && c.dst.SameKey(c.old) && !scrubs && !db.hooks.compactAnyway {
		return before, nil
	}
	if err := db.hooks.compactStep(stepSynced); err != nil {
		return before, err
	}
	if err := os.Rename(tmp, c.path); err != nil {
		return before, err
	}
	c.renamed = true
	db.committer.Swap(c.dst)
	if err := db.hooks.compactStep(stepNamed); err != nil {
		return after, err
	}
	if err := db.committer.ResyncMeta(); err != nil {
		db.log.NoteFlush(err)
		return after, err
	}
	return after, nil
}

// stillNamed returns an error unless the database's path is still the name of the open file.
func (c *compaction) stillNamed() error {
	opened, err := c.old.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(c.path); err != nil || !os.SameFile(named, opened) {
		return errors.Join(errors.New("the file has lost its name to another"), err)
	}
	return nil
}

// sizes returns the file's size and its free bytes, as of the newest commit.
func (db *DB) sizes() (size, free int64, err error) {
	info, err := os.Stat(db.path)
	if err != nil {
		return 0, 0, err
	}
	return info.Size(), db.handle.Stats(db.opts.Keys).FreeBytes, nil
}

// compactIfDue starts a compaction in the background if it is due. The log calls it after a fold.
func (db locked) compactIfDue() {
	if db.hooks.byHand || db.indexer.busy() {
		return
	}
	now := db.opts.Clock.Now()
	size, free, err := db.sizes()
	if err != nil || !db.compactor.due(now, size, free, db.hooks.compactMinFree) {
		return
	}
	db.compactor.notBefore = now.Add(compactEvery)
	db.background.start(db.compactInBackground)
}

func (db *DB) compactInBackground(ctx context.Context) {
	start := db.opts.Clock.Now()
	before, after, err := db.Compact(ctx)
	switch {
	case err == nil:
		db.opts.Logger.Info("database compacted", "before_bytes", before, "after_bytes", after,
			"took", db.opts.Clock.Since(start).Round(time.Millisecond))
	case ctx.Err() == nil:
		db.opts.Logger.Warn("the database could not be compacted; it stays in use as it is", "error", err)
		l := db.lock()
		defer l.unlock()
		l.compactor.notBefore = db.opts.Clock.Now().Add(compactRetry)
	}
}
