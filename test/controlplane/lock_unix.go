//go:build unix

package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// tryLock takes the lock of a file, creating it where needed, without waiting.
// The lock is held until what is returned is closed, or the process ends.
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

// fileLock is a file that is locked.
type fileLock struct{ *os.File }

// Close gives the lock back. Closing the file alone would not do so at once: a child that was
// forked right now has it open as well, until it becomes another program.
func (l fileLock) Close() error {
	return errors.Join(syscall.Flock(int(l.Fd()), syscall.LOCK_UN), l.File.Close())
}
