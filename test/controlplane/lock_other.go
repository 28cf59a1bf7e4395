//go:build !unix

package controlplane

import (
	"fmt"
	"io"
	"os"
)

// tryLock opens the file without locking it: without flock, only one process may use the package at
// a time.
func tryLock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	return f, nil
}
