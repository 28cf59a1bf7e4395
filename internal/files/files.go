package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// WriteAtomic writes a file for this user only, atomically and durably, in a directory that exists.
func WriteAtomic(path string, content []byte) error {
	tmp := path + ".tmp"
	err := Create(tmp, func(f *os.File) error { _, err := f.Write(content); return err })
	if err == nil {
		err = Replace(tmp, path)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Replace gives a new file the name of the one at path, if there is one. After an error tmp does not exist
// any more.
func Replace(tmp, path string) error {
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// Create makes a file for this user only, whose content fill writes, and makes the content durable, but not
// the name: see [SyncDir]. It replaces a file that a crash left. After an error there is none.
func Create(path string, fill func(f *os.File) error) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// SyncDir makes the names in a directory durable: after it returns, a rename or creation in dir survives a
// power cut.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// RefusesWrites reports whether an error means that a disk takes no writes, or that this user may not
// write: the file may be readable nevertheless.
func RefusesWrites(err error) bool {
	for _, refusal := range []error{syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT, fs.ErrPermission} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	// bbolt keeps only the text of some errors.
	return err != nil && strings.Contains(err.Error(), syscall.ENOSPC.Error())
}
