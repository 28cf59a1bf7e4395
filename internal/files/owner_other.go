//go:build !linux

package files

import "io/fs"

// ChownLike does nothing on this platform.
func ChownLike(string, fs.FileInfo) error { return nil }
