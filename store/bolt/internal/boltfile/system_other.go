//go:build !linux

package boltfile

import (
	"math"
)

// networkFS returns the empty name: this platform recognises no network file system.
func networkFS(string) (string, error) { return "", nil }

// FreeDisk returns no limit: a copy that does not fit fails while it is written.
func FreeDisk(string) (int64, error) { return math.MaxInt64, nil }
