//go:build !linux

package boltfile

import (
	"io/fs"
	"math"
)

// networkFS returns the empty name: this platform recognises no network file system.
func networkFS(string) (string, error) { return "", nil }

// FreeDisk returns no limit: a copy that does not fit fails while it is written.
func FreeDisk(string) (int64, error) { return math.MaxInt64, nil }

// ChownLike does nothing on this platform.
func ChownLike(string, fs.FileInfo) error { return nil }
