package restore

import "github.com/snapcache/snapcache/store"

// Collection is the verdict on a stored collection: resume at its checkpoint, or list for a reason.
// It is based on the file alone. Package reflector checks cluster and server before the resume.
type Collection struct {
	// RV is the checkpoint to resume from. It is valid if Reason is empty.
	RV string

	// Reason is why the collection must be listed; empty for a resume.
	Reason store.Reason
}

// Judge compares a stored collection with the configured one, and returns the verdict.
func Judge(stored, want store.Info, state store.State) Collection {
	switch {
	case !state.Synced || state.RV == "":
		return Collection{Reason: store.ReasonInitial}
	case stored.Scope() != want.Scope():
		return Collection{Reason: store.ReasonScopeChanged}
	case state.Skipped:
		return Collection{Reason: store.ReasonSkipped}
	default:
		return Collection{RV: state.RV}
	}
}

// String returns the verdict in one line.
func (c Collection) String() string {
	if c.Reason != "" {
		return "list: " + string(c.Reason)
	}
	return "resume at RV " + c.RV
}
