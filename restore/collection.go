package restore

import "github.com/snapcache/snapcache/store"

// Collection is the verdict on a stored collection: resume at its checkpoint, or
// list and why. It says what the file alone can tell; cluster and server are
// asked before the resume (see package reflector).
type Collection struct {
	// RV is where to resume, where Reason is empty.
	RV string

	// Reason is why it must be listed.
	Reason store.Reason
}

// Judge compares what is stored with what is wanted.
func Judge(stored, want store.Info, state store.State) Collection {
	switch {
	case !state.Synced || state.RV == "":
		return Collection{Reason: store.ReasonInitial}
	case stored.Scope() != want.Scope():
		return Collection{Reason: store.ReasonScopeChanged}
	default:
		return Collection{RV: state.RV}
	}
}

// String is the verdict in one line.
func (c Collection) String() string {
	if c.Reason != "" {
		return "list: " + string(c.Reason)
	}
	return "resume at RV " + c.RV
}
