package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
// same, journal included. If another process has the file open, the error is store.ErrLocked;
// if Check finds a problem, it is a *store.CorruptionError. It may also be ErrNoRoom or another
// of Open's errors.
//
// The new file is written and checked beside the old one, under path + ".compact", and replaces
// it by a rename: a crash at any moment leaves one complete file under the name. The next
// Compact removes an unfinished new file.
func Compact(path string, opts Options) (before, after int64, err error) {
	return compact(path, opts, boltfile.FreeDisk)
}

func compact(path string, opts Options, free func(dir string) (int64, error)) (before, after int64, err error) {
	// The rename would put the new file in the place of a link.
	file, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, 0, fmt.Errorf("%s: %w", path, store.ErrNoStore)
	case err != nil:
		return 0, 0, fmt.Errorf("compact: %w", err)
	}
	path = file
	report, err := sound(path, opts.Keys)
	if err != nil {
		return 0, 0, err
	}
	old, err := os.Stat(path)
	if err != nil {
		return 0, 0, fmt.Errorf("compact: %w", err)
	}
	before = old.Size()
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	opts.ReadOnly = false // takes the exclusive lock
	opts.MaxBytes = max(opts.MaxBytes, before+boltfile.AllocBytes)
	src, err := boltfile.Open(path, opts.file())
	if err != nil {
		return before, 0, err
	}
	// Closing src releases the lock, so it comes last: an agent that starts waits until then,
	// and notices that the name belongs to another file.
	defer func() { err = errors.Join(err, src.Close()) }()

	if err := src.Unlock(opts.Keys); err != nil {
		return before, 0, err
	}
	tmp := path + compactSuffix
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return before, 0, fmt.Errorf("compact: %w", err)
	}
	if err := checkFreeSpace(filepath.Dir(path), before-report.FreeBytes+boltfile.AllocBytes, free); err != nil {
		return before, 0, fmt.Errorf("compact %s: %w", path, err)
	}
	if after, err = copyInto(tmp, src, old, opts); err != nil {
		return before, 0, errors.Join(fmt.Errorf("compact %s: %w", path, err), os.RemoveAll(tmp))
	}
	if after >= before && !src.NeedsRekey(opts.Keys) {
		return before, before, os.Remove(tmp) // the copy is not smaller
	}
	if err := os.Rename(tmp, path); err != nil {
		return before, 0, errors.Join(fmt.Errorf("compact: %w", err), os.Remove(tmp))
	}
	return before, after, boltfile.SyncDir(filepath.Dir(path))
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

// copyInto copies src to a new file at tmp, checks and syncs it, and returns its size. The new
// file gets the owner of like, the file that it will replace.
func copyInto(tmp string, src *boltfile.File, like fs.FileInfo, opts Options) (int64, error) {
	dst, err := src.OpenSuccessor(tmp, opts.Keys, opts.file())
	if err != nil {
		return 0, err
	}
	err = src.View(func(tx *boltfile.Tx) error {
		return boltfile.CopyBuckets(context.Background(), dst, tx, boltfile.CopyOptions{})
	})
	if err == nil {
		err = dst.Update(func(tx *boltfile.Tx) error { return boltfile.Stamp(tx, true) })
	}
	if err = errors.Join(err, dst.Close()); err != nil {
		return 0, err
	}
	if err := boltfile.ChownLike(tmp, like); err != nil {
		return 0, fmt.Errorf("give the new file to the owner of the old one: %w", err)
	}
	if _, err := sound(tmp, opts.Keys); err != nil {
		return 0, err
	}
	f, err := os.Open(tmp)
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// sound checks a file. If there are problems, it returns the first one as a
// *store.CorruptionError.
func sound(path string, keys Keyring) (*CheckReport, error) {
	report, err := Check(path, keys, nil)
	if err != nil {
		return nil, err
	}
	if !report.OK() {
		p := report.Problems[0]
		return nil, &store.CorruptionError{Path: path, Collection: p.Collection, Key: p.Key, Reason: p.Reason}
	}
	return report, nil
}
