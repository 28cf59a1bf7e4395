package snapshot

import "errors"

var (
	// ErrForeign says that a file is not a snapshot.
	ErrForeign = errors.New("not a snapcache snapshot")

	// ErrNewerFormat says that a newer version of snapcache wrote the snapshot.
	ErrNewerFormat = errors.New("snapshot has a newer format")

	// ErrNoSnapshot says that there is no snapshot of that name.
	ErrNoSnapshot = errors.New("no snapshot")

	// ErrBusy says that another snapshot is being made, or old ones are being removed,
	// in the same directory.
	ErrBusy = errors.New("another snapshot is being made")
)
