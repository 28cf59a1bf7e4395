package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/snapcache/snapcache/store"
)

// RefuseNetwork returns an error if the path of a database to write is on a network file system.
// fileSystem is NetworkFS, except in tests. A database file is mapped, its lock has to keep other
// machines out, and a sync has to reach the disk: over a network none of these is reliable, and an
// outdated page is corruption that no lock prevents. Snapshots are written and read sequentially,
// under checksums, so they may be anywhere.
func RefuseNetwork(path string, fileSystem func(path string) (network string, err error)) error {
	at := path
	for {
		network, err := fileSystem(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at:
			at = filepath.Dir(at) // it does not exist yet
			continue
		case err != nil:
			return fmt.Errorf("open database: file system of %s: %w", path, err)
		case network != "":
			return fmt.Errorf("%s: %w (%s)", path, store.ErrNetworkFS, network)
		}
		return nil
	}
}
