package snapshot

import "errors"

var (
	// ErrForeign means that a file is not a snapshot.
	ErrForeign = errors.New("not a snapcache snapshot")

	// ErrNewerFormat means that a newer version of snapcache wrote the snapshot.
	ErrNewerFormat = errors.New("snapshot has a newer format")

	// ErrNoSnapshot means that there is no snapshot of that name.
	ErrNoSnapshot = errors.New("no snapshot")

	// ErrBusy means that another snapshot is being made, or old ones are being removed, in the same
	// directory.
	ErrBusy = errors.New("another snapshot is being made")
)
