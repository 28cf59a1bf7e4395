package restore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// resetReason is in the name of a file that was given up on purpose.
const resetReason = "reset"

// Reset gives up the database at path, whatever state it is in: it is set aside, or where
// remove is true deleted with what a crash may have left beside it. An agent that
// starts then begins with nothing, or with its seed. It returns the name under which the file was set
// aside. store.ErrLocked where an agent has it open, store.ErrNoStore where there is none.
func Reset(path string, remove bool, now time.Time) (aside string, err error) {
	// What is given up is the file, not a link to it.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s: %w", path, store.ErrNoStore)
	case err != nil:
		return "", fmt.Errorf("reset: %w", err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("reset: %s is not a regular file: name another path", path)
	}
	unlock, err := bolt.Lock(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if remove {
		for _, name := range append(bolt.Leftovers(path), path+newSuffix) {
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
	return aside, bolt.SyncDir(filepath.Dir(path))
}
