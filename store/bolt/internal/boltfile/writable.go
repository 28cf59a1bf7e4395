package boltfile

import (
	"errors"
	"fmt"
	"os"

	"github.com/snapcache/snapcache/store"
)

// MakeWritable opens the current file, which was opened for reading only, for writing, and makes that
// the current file. Readers of the old one continue. On an error nothing has changed.
func (c *Committer) MakeWritable(opts Options, keys Keyring) error {
	// The lock is given up only for a disk that takes writes.
	probe, err := os.OpenFile(c.Path, os.O_RDWR, 0)
	if err == nil {
		err = probe.Close()
	}
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	old := c.Handle.current()
	if err := unshare(old.raw); err != nil {
		return fmt.Errorf("open database: unlock: %w", err)
	}
	f, err := Open(c.Path, opts)
	if err != nil {
		return errors.Join(err, share(old.raw))
	}
	if err = errors.Join(f.Unlock(keys), sameState(old, f)); err == nil {
		// Both have the pages in common. As long as the old file has readers, this transaction keeps the
		// pages of its state from being used again.
		old.successor, err = f.bolt.Begin(false)
	}
	if err != nil {
		return errors.Join(err, f.Close(), share(old.raw))
	}
	c.Swap(f)
	return nil
}

// sameState returns an error unless both are one file, in one state.
func sameState(x, y *File) error {
	infoX, errX := x.Stat()
	infoY, errY := y.Stat()
	if err := errors.Join(errX, errY); err != nil {
		return err
	}
	ids := [2]int{}
	for i, f := range []*File{x, y} {
		if err := f.View(func(tx *Tx) error { ids[i] = tx.ID(); return nil }); err != nil {
			return err
		}
	}
	if !os.SameFile(infoX, infoY) || ids[0] != ids[1] {
		return fmt.Errorf("%s: %w: it was changed by another process while it could only be read: restart the agent", y.path, store.ErrLocked)
	}
	return nil
}
