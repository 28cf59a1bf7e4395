//go:build unix

package snapshot

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks an open file until it is closed. busy reports that another process has locked it.
func tryLock(f *os.File) (busy bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor is a small number
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
