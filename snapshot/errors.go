package snapshot

import "errors"

var (
	// ErrForeign means that a file is not a snapshot.
	ErrForeign = errors.New("not a snapcache snapshot")

	// ErrNoSnapshot means that there is no snapshot of that name.
	ErrNoSnapshot = errors.New("no snapshot")

	// ErrBusy means that another snapshot is being made, or old ones are being removed, in the same
	// directory.
	ErrBusy = errors.New("another snapshot is being made")
)
