package restore

import (
	"errors"

	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// hints are what the operator can do about a database or snapshot that can't be used.
var hints = []struct {
	err  error
	hint string
}{
	{store.ErrLocked, "stop the other snapcache, or give this one a store.path of its own"},
	{store.ErrKey, "name its key in encryption.keyFile, or in encryption.oldKeyFiles if it is an old one; a command takes it from --encryption-key-file or the agent's --config"},
	{store.ErrNetworkFS, "give a store.path or --db on a local disk; snapshots.dir may be anywhere"},
	{store.ErrForeign, "give another file with --db; an agent that starts on it sets it aside"},
	{store.ErrNewerFormat, "use the version of snapcache that wrote it, or a later one"},
	{store.ErrOldFormat, "an agent that starts on it sets it aside"},
	{snapshot.ErrNoSnapshot, "snapcache snapshot list shows the names"},
	{bolt.ErrNoRoom, "free space, or put snapshots elsewhere (snapshots.dir)"},
}

// WithHint adds the next step to an error for a database or snapshot, if there is one.
func WithHint(err error) error {
	for _, h := range hints {
		if errors.Is(err, h.err) {
			return &store.Error{Err: err, Hint: h.hint}
		}
	}
	return err
}
