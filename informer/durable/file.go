package durable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

const (
	// FileName is the name of the cache's file in its directory.
	FileName = "snapcache.db"

	// MinFreeBytes is the free space below which a disk counts as full. A disk that the first list fills
	// has less afterwards, because the file keeps its size: so the next start is in memory.
	MinFreeBytes = 16 << 20

	// quota limits the file, in bytes, by what can be mapped: the disk has the limit that counts. A mapping
	// takes address space, of which a 32-bit program has little.
	quota = 1 << 30 << (strconv.IntSize / 64 * 6)

	// lockWait is how long Open waits for another process to close the file: one that is ending, not one
	// that runs beside this one.
	lockWait  = 3 * time.Second
	lockPause = 100 * time.Millisecond // between two tries
)

func (opts *Options) path() string { return filepath.Join(opts.Dir, FileName) }

// openFile opens the file. A corrupt one is set aside.
func (opts *Options) openFile(ctx context.Context) (*bolt.DB, error) {
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, err
	}
	path, settings := opts.path(), bolt.Options{Logger: opts.Logger, MaxBytes: quota, NoHistory: true}
	db, verdict, err := opts.await(ctx, path, settings)
	if err == nil && verdict.Corrupt > 0 {
		// To a reconciler a record that can't be read is an object that was deleted.
		err = errors.Join(&store.CorruptionError{
			Path: path, Reason: fmt.Sprintf("%d of %d records can't be read", verdict.Corrupt, verdict.Checked),
		}, db.Close())
	}
	if spoilt(err) {
		db, verdict, err = restore.Replace(ctx, path, settings, err, restore.Sources{}, time.Now())
	}
	if err != nil {
		return nil, err
	}
	if err := bolt.CheckFreeSpace(opts.Dir, MinFreeBytes); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if verdict.Outcome == restore.Quarantined {
		opts.Logger.Warn("the cache's file could not be used and was set aside; everything is listed again",
			"reason", verdict.Reason, "error", verdict.Cause, "moved", verdict.MovedTo)
	} else {
		opts.Logger.Info("cache "+verdict.String(), "path", path)
	}
	if err := db.JournalCorruption(); err != nil {
		opts.Logger.Warn("the journal is corrupt; the changes after the damage were discarded and will be watched again", "error", err)
	}
	return db, nil
}

// await opens the file at path once no other process has it open, and waits for at most lockWait.
func (opts *Options) await(ctx context.Context, path string, settings bolt.Options) (*bolt.DB, restore.File, error) {
	var c clock.RealClock
	for began := c.Now(); ; {
		db, verdict, err := restore.OpenAsIs(ctx, path, settings, "", c.Now(), nil)
		if !errors.Is(err, store.ErrLocked) || c.Since(began) > lockWait {
			return db, verdict, err
		}
		opts.Logger.Debug("waiting for another process to close the cache", "path", path)
		if sleep.For(ctx, c, lockPause) != nil {
			return db, verdict, err
		}
	}
}

// spoilt reports whether err means that the file is this package's and can never be used again. A file of
// another program is not ours to move, and one of a newer format is of use to the program's next version.
func spoilt(err error) bool {
	return errors.Is(err, store.ErrOldFormat) || errors.As(err, new(*store.CorruptionError))
}
