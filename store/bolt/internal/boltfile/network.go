package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/snapcache/snapcache/store"
)

// RefuseNetwork returns an error for a path on a network file system, which is for writing.
// fileSystem is NetworkFS. The file is mapped, its
// lock has to keep other machines out, and a sync has to reach the disk: over a network
// none of these can be relied on, and a page that comes back old is damage that no
// lock prevents. Copies of the database (snapshots) are written and read from one end to
// the other under checksums, so these may be anywhere.
func RefuseNetwork(path string, fileSystem func(path string) (network string, err error)) error {
	at := path
	for {
		network, err := fileSystem(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at:
			at = filepath.Dir(at) // it is about to be made
			continue
		case err != nil:
			return fmt.Errorf("open database: file system of %s: %w", path, err)
		case network != "":
			return fmt.Errorf("%s: %w (%s)", path, store.ErrNetworkFS, network)
		}
		return nil
	}
}
