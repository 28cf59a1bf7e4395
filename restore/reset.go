package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

const resetReason = "reset"

// Reset discards the database at path, in any state: it renames it and returns the new name or, if
// remove is true, deletes it together with the temporary files of a crash. An agent that starts
// then begins with an empty database, or with its seed. It returns store.ErrLocked if an agent has
// the file open, and store.ErrNoStore if there is none.
func Reset(path string, remove bool, now time.Time) (aside string, err error) {
	path, _, err = statTarget(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s: %w", path, store.ErrNoStore)
	case err != nil:
		return "", fmt.Errorf("reset: %w", err)
	}
	unlock, err := bolt.Lock(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if remove {
		for _, name := range append(bolt.TempFiles(path), path+newSuffix) {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", fmt.Errorf("reset: %w", err)
			}
		}
		err = os.Remove(path)
	} else {
		aside = asideName(path, resetReason, now)
		err = os.Rename(path, aside)
	}
	if err != nil {
		return "", fmt.Errorf("reset: %w", err)
	}
	return aside, files.SyncDir(filepath.Dir(path))
}
