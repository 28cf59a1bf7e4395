//go:build unix

package boltfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapcache/snapcache/store"
)

// share and unshare take and release the lock with which bbolt opens a file for reading.
func share(f *os.File) error   { return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) } //nolint:gosec // see Lock
func unshare(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }              //nolint:gosec // see Lock

// Lock holds the lock of the database at path until unlock is called, see bolt.Lock.
func Lock(path string) (unlock func() error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock database: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor is a small number
	if errors.Is(err, unix.EWOULDBLOCK) || err == nil && !names(path, f) {
		err = store.ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f.Close, nil
}
