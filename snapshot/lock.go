package snapshot

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes an advisory lock that keeps other processes from making and removing snapshots in the
// directory, until unlock is called or the process ends.
func (d Dir) lock() (unlock func() error, err error) {
	f, err := os.Open(d.Path)
	if err != nil {
		return nil, fmt.Errorf("lock snapshot directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor is a small number
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%w in %s", ErrBusy, d.Path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
