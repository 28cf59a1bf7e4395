package store

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound says that a key is not in the collection.
	ErrNotFound = errors.New("not found")

	// ErrNoIndex says that a collection has no index of that name.
	ErrNoIndex = errors.New("no such index")

	// ErrIndexBuilding says that an index was added to a collection that had objects
	// and is not complete yet. What is asked of it has to wait, or be read from the
	// objects.
	ErrIndexBuilding = errors.New("index is being built: try again soon, or read without it")

	// ErrNoCollection says that the store has no collection of that ID.
	ErrNoCollection = errors.New("no such collection")

	// ErrClosed says that the store or view was closed.
	ErrClosed = errors.New("store is closed")

	// ErrViewExpired says that a view was open for longer than the store allows. What
	// it gave before is good; take a new one to read on.
	ErrViewExpired = errors.New("view was open for too long")

	// ErrReplacing says that a collection is being replaced and so takes neither a
	// batch nor a second replacement until that one ends.
	ErrReplacing = errors.New("collection is being replaced")

	// ErrScope says that a collection holds objects of another scope than it was
	// opened with, so that only a Replacement may change it.
	ErrScope = errors.New("collection holds another scope and must be replaced first")

	// ErrFuture says that a collection has not come to a resourceVersion yet.
	ErrFuture = errors.New("the collection is not there yet")

	// ErrLocked says that another process has the database open.
	ErrLocked = errors.New("database is in use by another process")

	// ErrNoStore says that there is no database at a path.
	ErrNoStore = errors.New("no database")

	// ErrNetworkFS says that the database would be on a network file system, where neither
	// its lock nor its pages can be relied on.
	ErrNetworkFS = errors.New("the database is on a network file system, where locks and mapped files can't be relied on")

	// ErrTooLarge says that the database is, or could grow, larger than what a program of
	// this platform can map.
	ErrTooLarge = errors.New("the database is too large for a 32-bit program")

	// ErrKey says that the database is encrypted with a key that was not given.
	ErrKey = errors.New("no key for the database")

	// ErrNewerFormat says that a newer version of snapcache wrote the database.
	ErrNewerFormat = errors.New("database has a newer format")

	// ErrForeign says that a file is not a snapcache database.
	ErrForeign = errors.New("not a snapcache database")
)

// CorruptionError says that stored bytes are damaged. Nothing that carries this
// error was served.
type CorruptionError struct {
	Path       string // the file, where there is one
	Collection string // the collection's ID, empty for the file as a whole
	Key        string // the object's key, empty for the collection as a whole
	Reason     string
}

func (e *CorruptionError) Error() string {
	switch {
	case e.Key != "":
		return fmt.Sprintf("%s: collection %s: record %s is damaged: %s", e.Path, e.Collection, e.Key, e.Reason)
	case e.Collection != "":
		return fmt.Sprintf("%s: collection %s is damaged: %s", e.Path, e.Collection, e.Reason)
	default:
		return fmt.Sprintf("%s is damaged: %s", e.Path, e.Reason)
	}
}
