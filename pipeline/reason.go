package pipeline

import "github.com/snapcache/snapcache/store"

// ListReason compares a stored collection with the one that is wanted, and returns why it must be listed;
// empty if its checkpoint may be used. Only the store is asked: the reflector's guards check cluster and
// server before the resume.
func ListReason(stored, want store.Info, state store.State) store.Reason {
	switch {
	case !state.Synced:
		return store.ReasonInitial
	case stored.Scope() != want.Scope():
		return store.ReasonScopeChanged
	case state.Skipped:
		return store.ReasonSkipped
	case state.RV == "": // not before the scope, whose change makes the stored versions worthless
		return store.ReasonInitial
	}
	return ""
}
