//go:build unix

package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// tryLock takes the lock of a file without waiting, and creates the file if needed. The lock is
// held until the returned closer is closed, or the process ends.
func tryLock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", path, ErrLocked)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return fileLock{f}, nil
}

// fileLock is a locked file.
type fileLock struct{ *os.File }

// Close releases the lock. Closing the file alone might not release it at once: a child that was
// just forked has the file open too, until it executes its program.
func (l fileLock) Close() error {
	return errors.Join(syscall.Flock(int(l.Fd()), syscall.LOCK_UN), l.File.Close())
}
