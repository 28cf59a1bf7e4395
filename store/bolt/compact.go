package bolt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
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

// compactSuffix is appended to the database's path for the new file until the rename.
const compactSuffix = ".compact"

// ErrNoRoom means that there is not enough free disk for the second file that a compaction, a backup
// or an unpacked snapshot is.
var ErrNoRoom = errors.New("not enough free disk")

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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(db.ctx, cancel)()
	start := db.opts.Clock.Now()
	c := &compaction{db: db}
	before, after, err = c.run(ctx)
	if c.renamed {
		db.compactor.count.Add(1)
		db.compactor.took.Add(int64(db.opts.Clock.Since(start)))
		db.compactor.saved.Add(before - after)
	}
	if err != nil {
		if db.ctx.Err() != nil {
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
// size is the file's, free its unused bytes.
func (c *compactor) due(now time.Time, size, free int64) bool {
	return !c.running && !now.Before(c.notBefore) && free >= compactMinFree && free >= compactFreeFactor*(size-free)
}

// compaction is one rewrite of an open database.
type compaction struct {
	db         *DB
	old        *boltfile.File // the current one, as nothing else swaps it meanwhile
	src        *boltfile.Tx   // of old
	epoch      uint64         // of old, when src began
	uncertainN int            // the committer's count of uncertain commits, when src began
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
	if err := CheckFreeSpace(filepath.Dir(c.path), before-free+boltfile.AllocBytes+compactSpare); err != nil {
		return before, before, err
	}
	tmp := c.path + compactSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return before, before, err
	}
	if c.dst, err = c.old.OpenSuccessor(tmp, db.opts.Keys, db.opts.file()); err != nil {
		return before, before, errors.Join(err, os.RemoveAll(tmp))
	}
	c.reached("begun")
	if err = c.copy(ctx, tmp); err == nil {
		c.reached("copied")
		after, err = c.finish(ctx, tmp, before)
	}
	if !c.renamed {
		return before, before, errors.Join(err, c.dst.Close(), os.Remove(tmp))
	}
	return before, after, err
}

// reached logs a step of a compaction.
func (c *compaction) reached(step string) {
	c.db.opts.Logger.Debug("the database is being compacted", "step", step)
}

// begin begins a read transaction on the current file and makes folds, builds and Close wait. It takes
// the write lock.
func (c *compaction) begin() error {
	db := c.db.lock()
	defer db.unlock()
	if db.ctx.Err() != nil {
		return store.ErrClosed
	}
	if db.compactor.running {
		return ErrBusy
	}
	src, err := db.handle.Begin()
	if err != nil {
		return err
	}
	c.src, c.old, c.uncertainN = src, src.File(), db.committer.UncertainCommits()
	db.compactor.running = true
	db.active.Add(1)
	return src.Read(func() error { c.epoch = boltfile.Epoch(src); return nil })
}

// end undoes begin and wakes the builds. It takes the write lock.
func (c *compaction) end() {
	if c.src == nil {
		return
	}
	c.src.Rollback()
	db := c.db.lock()
	defer db.unlock()
	db.compactor.running = false
	db.indexer.wake()
	db.active.Done()
}

func isJournal(path [][]byte, name []byte) bool {
	return path == nil && bytes.Equal(name, format.BucketJournal)
}

// copy copies all but the journal to the new file, and compares the two.
func (c *compaction) copy(ctx context.Context, tmp string) error {
	like, err := c.old.Stat()
	if err != nil {
		return err
	}
	if err := files.ChownLike(tmp, like); err != nil {
		return fmt.Errorf("give the new file to the owner of the old one: %w", err)
	}
	if err := boltfile.CopyBuckets(ctx, c.dst, c.src, boltfile.CopyOptions{Skip: isJournal}); err != nil {
		return err
	}
	err = c.dst.View(func(tx *boltfile.Tx) error { return boltfile.Compare(ctx, c.src, tx, isJournal) })
	c.src.Rollback() // an open read transaction makes the old file grow with each flush
	return err
}

// finish copies the journal and puts the new file in the old one's place, under the write lock.
// It returns ErrBusy if the buckets have changed or a commit became uncertain since begin.
func (c *compaction) finish(ctx context.Context, tmp string, before int64) (after int64, err error) {
	db := c.db.lock()
	defer db.unlock()
	var epoch uint64
	switch err := db.handle.View(func(tx *boltfile.Tx) error { epoch = boltfile.Epoch(tx); return nil }); {
	case err != nil:
		return before, err
	case epoch != c.epoch, db.committer.UncertainCommits() != c.uncertainN:
		return before, ErrBusy
	}
	if !c.old.Named(c.path) {
		return before, errors.New("the file has lost its name to another")
	}
	scrubs := false
	err = c.old.View(func(src *boltfile.Tx) error {
		scrubs = sanitizeDue(src)
		return boltfile.CopyBuckets(ctx, c.dst, src, boltfile.CopyOptions{
			Skip: func(path [][]byte, name []byte) bool { return path == nil && !isJournal(path, name) },
		})
	})
	if err == nil {
		err = c.dst.Update(func(dst *boltfile.Tx) error {
			return errors.Join(dst.Bucket(format.BucketMeta).Delete(format.KeySanitize), boltfile.Stamp(dst, false))
		})
	}
	if err = errors.Join(err, c.dst.Sync()); err != nil {
		return before, err
	}
	info, err := c.dst.Stat()
	if err != nil {
		return before, err
	}
	if after = info.Size(); after >= before && c.dst.SameKey(c.old) && !scrubs {
		return before, nil
	}
	c.reached("synced")
	if err := os.Rename(tmp, c.path); err != nil {
		return before, err
	}
	c.renamed = true
	db.committer.Swap(c.dst)
	c.reached("renamed")
	if err := db.committer.ResyncMeta(); err != nil {
		db.log.NoteFlush(err)
		return after, err
	}
	return after, nil
}

// sizes returns the file's size and its free bytes, as of the newest commit.
func (db *DB) sizes() (size, free int64, err error) {
	info, err := os.Stat(db.path)
	if err != nil {
		return 0, 0, err
	}
	return info.Size(), db.handle.FreeBytes(), nil
}

// compactIfDue starts a compaction in the background if it is due. The log calls it after a fold.
func (db locked) compactIfDue() {
	if db.indexer.busy() {
		return
	}
	now := db.opts.Clock.Now()
	size, free, err := db.sizes()
	if err != nil || !db.compactor.due(now, size, free) {
		return
	}
	db.compactor.notBefore = now.Add(compactEvery)
	db.start(db.compactInBackground)
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

// Compact rewrites the database at path without its free space, encrypted with the primary key
// of the options, and returns the file's size in bytes before and after. The content stays the
// same, journal included. It is [Check] and [DB.Compact]: if another process has the file open, the
// error is store.ErrLocked; if there is a problem, it is a *store.CorruptionError. It may also be
// ErrNoRoom or another of Open's errors.
func Compact(path string, opts Options) (before, after int64, err error) {
	if err := sound(path, opts.Keys); err != nil {
		return 0, 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, fmt.Errorf("compact: %w", err)
	}
	opts.ReadOnly = false // takes the exclusive lock
	opts.MaxBytes = max(cmp.Or(opts.MaxBytes, DefaultMaxBytes), info.Size()+boltfile.AllocBytes)
	db, err := open(path, opts, false, nil)
	if err != nil {
		return 0, 0, err
	}
	// The handle, because DB.Close would fold the journal. An agent that starts waits until then for
	// the lock.
	defer func() { err = errors.Join(err, db.handle.Close()) }()
	before, after, err = db.Compact(context.Background())
	if err == nil && db.compactor.count.Load() > 0 {
		err = db.committer.Close(func() error { return nil })
	}
	return before, after, err
}

// CheckFreeSpace returns ErrNoRoom unless the disk of dir has need bytes free.
func CheckFreeSpace(dir string, need int64) error {
	have, err := boltfile.FreeDisk(dir)
	if err != nil {
		return fmt.Errorf("free disk: %w", err)
	}
	if have < need {
		return fmt.Errorf("%w: %d bytes are needed in %s and %d are free", ErrNoRoom, need, dir, have)
	}
	return nil
}

// sound checks a file. If there are problems, it returns the first one as a *store.CorruptionError.
func sound(path string, keys Keyring) error {
	report, err := Check(path, keys, nil)
	if err != nil {
		return err
	}
	if !report.OK() {
		p := report.Problems[0]
		return &store.CorruptionError{Path: path, Collection: p.Collection, Key: p.Key, Reason: p.Reason}
	}
	return nil
}
