package store

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound means that the collection has no object at a key.
	ErrNotFound = errors.New("not found")

	// ErrNoIndex means that a collection has no index of that name.
	ErrNoIndex = errors.New("no such index")

	// ErrNoCollection means that the store has no collection of that ID.
	ErrNoCollection = errors.New("not cached")

	// ErrClosed means that the store, collection or view was closed.
	ErrClosed = errors.New("closed")

	// ErrInUse means that a collection is open already: it has one owner at a time. The error is an
	// [InUseError].
	ErrInUse = errors.New("the collection is in use")

	// ErrViewExpired means that a view was open for longer than the store allows. Earlier results
	// of the view are valid; the caller needs a new view to continue.
	ErrViewExpired = errors.New("view was open for too long")

	// ErrReplacing means that a collection is being replaced: until the replacement ends, it
	// takes neither a batch nor a second replacement.
	ErrReplacing = errors.New("collection is being replaced")

	// ErrScope means that a collection holds objects of another scope than it was opened with:
	// only a Replacement may change it.
	ErrScope = errors.New("collection holds another scope and must be replaced first")

	// ErrAhead means that a collection has not reached a resourceVersion yet.
	ErrAhead = errors.New("ahead of the cache")

	// ErrNoHistory means that a store keeps no history, so that the changes of a collection since some
	// point can't be read.
	ErrNoHistory = errors.New("the store keeps no history of changes")

	// ErrLocked means that another process has the database open.
	ErrLocked = errors.New("database is in use by another process")

	// ErrNoStore means that there is no database at a path.
	ErrNoStore = errors.New("no database")

	// ErrNetworkFS means that the database would be on a network file system, on which neither
	// its lock nor its mapped pages can be relied on.
	ErrNetworkFS = errors.New("the database is on a network file system, where locks and mapped files can't be relied on")

	// ErrTooLarge means that the database is, or could grow, too large for a program of this
	// platform to map.
	ErrTooLarge = errors.New("the database is too large for a 32-bit program")

	// ErrKey means that the database is encrypted with a key that was not given.
	ErrKey = errors.New("no key for the database")

	// ErrNewerFormat means that a newer version of snapcache wrote the database or snapshot.
	ErrNewerFormat = errors.New("newer format")

	// ErrOldFormat means that the database has a format that is not read any more.
	ErrOldFormat = errors.New("database has an old format")

	// ErrForeign means that a file is not a snapcache database.
	ErrForeign = errors.New("not a snapcache database")
)

// Error is an error with the next step for the operator.
type Error struct {
	Err  error
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() + ": " + e.Hint }

// Unwrap returns the error without the hint.
func (e *Error) Unwrap() error { return e.Err }

// CorruptionError means that stored bytes are corrupt. None of their content was returned.
type CorruptionError struct {
	Path       string `json:"path,omitempty"`       // the file; empty if there is none
	Collection string `json:"collection,omitempty"` // the collection's ID; empty for the file as a whole
	Key        string `json:"key,omitempty"`        // the object's key; empty for the collection as a whole
	Reason     string `json:"reason"`
}

func (e *CorruptionError) Error() string {
	switch {
	case e.Key != "":
		return fmt.Sprintf("%s: collection %s: record %s is corrupt: %s", e.Path, e.Collection, e.Key, e.Reason)
	case e.Collection != "":
		return fmt.Sprintf("%s: collection %s is corrupt: %s", e.Path, e.Collection, e.Reason)
	default:
		return fmt.Sprintf("%s is corrupt: %s", e.Path, e.Reason)
	}
}
