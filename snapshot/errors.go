package snapshot

import (
	"errors"
	"strings"

	"github.com/snapcache/snapcache/store"
)

var (
	// ErrForeign means that a file is not a snapshot.
	ErrForeign = errors.New("not a snapcache snapshot")

	// ErrNoSnapshot means that there is no snapshot of that name.
	ErrNoSnapshot = errors.New("no snapshot")

	// ErrQuota means that the database in a snapshot is larger than a database may be here.
	ErrQuota = errors.New("the snapshot is over the quota")

	// ErrBusy means that another snapshot is being made, or old ones are being removed, in the same
	// directory.
	ErrBusy = errors.New("another snapshot is being made")
)

// Named returns err for the file that a user gave in place of file, a temporary one that was made of it:
// its text, and the path of a *store.CorruptionError, name path instead.
func Named(err error, file, path string) error {
	if err == nil {
		return nil
	}
	if damage, ok := errors.AsType[*store.CorruptionError](err); ok && damage.Path == file {
		damage.Path = path
	}
	if text := err.Error(); strings.Contains(text, file) {
		return namedError{err, strings.ReplaceAll(text, file, path)}
	}
	return err
}

type namedError struct {
	err  error
	text string
}

func (e namedError) Error() string { return e.text }
func (e namedError) Unwrap() error { return e.err }
