package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
)

// compactSuffix is appended to the database's path for the new file until the rename.
const compactSuffix = ".compact"

// ErrNoRoom means that there is not enough free disk for the second file that a compaction or a
// backup writes.
var ErrNoRoom = errors.New("not enough free disk for a copy")

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
	db, err := Open(path, opts)
	if err != nil {
		return 0, 0, err
	}
	// The handle, because DB.Close would fold the journal. An agent that starts waits until then for
	// the lock.
	defer func() { err = errors.Join(err, db.handle.Close()) }()
	before, after, err = db.Compact(context.Background())
	if err == nil && db.compactor.count.Load() > 0 {
		db.committer.MarkClosing()
		err = errors.Join(db.committer.MarkCleanShutdown(), db.committer.ResyncMeta())
	}
	return before, after, err
}

// checkFreeSpace returns ErrNoRoom unless the disk of dir has need bytes free.
func checkFreeSpace(dir string, need int64, free func(dir string) (int64, error)) error {
	have, err := free(dir)
	if err != nil {
		return fmt.Errorf("free disk: %w", err)
	}
	if have < need {
		return fmt.Errorf("%w: %d bytes are needed in %s and %d are free", ErrNoRoom, need, dir, have)
	}
	return nil
}

// sound checks a file. If there are problems, it returns the first one as a
// *store.CorruptionError.
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
