package store

import (
	"fmt"
	"time"

	"github.com/snapcache/snapcache/object"
)

// Defaults of the limits of a collection's history.
const (
	DefaultHistoryRetention = 24 * time.Hour
	DefaultHistoryBytes     = 16 << 20
)

// EventType is the kind of a change of a key, as in watch events of the Kubernetes API.
type EventType string

// The types of events.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
)

// Event is one entry of a collection's history: the newest change of a key, or a deletion. An
// older change of the same object is not in the history.
type Event struct {
	// RV is the resourceVersion of the change. A deletion found by a list gets a free number
	// between the checkpoint before the list and the list's.
	RV string

	// Time is [Checkpoint.Proven] of the change's batch, in whole seconds of the local clock.
	Time time.Time

	Key string

	// Object is the object at the key; if Deleted is set, the last one before the deletion.
	Object  *object.Object
	Deleted bool

	// FirstRV and FirstTime are RV and Time of the change with which the object, by its UID,
	// appeared; both are zero if that was before the history.
	FirstRV   string
	FirstTime time.Time

	Attributes Attributes // of the object; see AttributesAt
}

// Since returns the event's type for a reader that has the state at rv. ok is false if the reader
// does not need the event: the object appeared after rv and was deleted.
func (e Event) Since(rv string) (t EventType, ok bool) {
	cmp, comparable := object.CompareRV(e.FirstRV, rv)
	return e.seen(comparable && cmp > 0)
}

// SinceTime is Since for a reader that has all changes before t. A FirstTime after Time, which a wrong
// clock has made, does not count.
func (e Event) SinceTime(t time.Time) (_ EventType, ok bool) {
	return e.seen(!e.FirstTime.IsZero() && !e.FirstTime.Before(t) && !e.FirstTime.After(e.Time))
}

func (e Event) seen(appeared bool) (EventType, bool) {
	switch {
	case e.Deleted:
		return Deleted, !appeared
	case appeared:
		return Added, true
	}
	return Modified, true
}

// Horizon is where a collection's history begins: it has all changes after RV. Before the first
// complete list there is no history, and the Horizon is zero.
type Horizon struct {
	RV   string    `json:"resourceVersion"`
	Time time.Time `json:"time"` // of the change at RV, see [Event.Time]

	// First reports that nothing came before: RV is of the collection's first list.
	First bool `json:"first,omitempty"`
}

// TooOldError means that the history no longer has all changes since an RV. A kube-apiserver
// answers 410 in this case: the caller has to read the whole collection again.
type TooOldError struct {
	Collection string
	Since      string
	Horizon    Horizon
}

func (e *TooOldError) Error() string {
	if e.Horizon.RV == "" {
		return fmt.Sprintf("collection %s: no history yet", e.Collection)
	}
	return fmt.Sprintf("collection %s: resourceVersion %q is too old: the history begins after %s, at %s",
		e.Collection, e.Since, e.Horizon.RV, e.Horizon.Time.UTC().Format(time.RFC3339))
}

// ContinuesHistory reports whether a complete list with checkpoint next, under the stored scope,
// continues the history of state: the history before the list then stays valid, and the list's
// changes become a part of it. Otherwise another history begins at the list, because older
// resourceVersions may have another meaning now.
func ContinuesHistory(state State, next Checkpoint) bool {
	cmp, ok := object.CompareRV(state.RV, next.RV)
	return state.Synced && ok && cmp <= 0 && state.Cluster == next.Cluster && next.ListReason.TrustsVersions()
}

// Attributes are the history's records of the values that an object had in the index with
// [Index.History] set.
type Attributes struct {
	Spec  string // of that index; empty if the history has none
	Since string // the resourceVersion from which on the values are known

	// Rows has each change of the values since then, and perhaps some before, in ascending order.
	Rows []AttributesRow
}

// AttributesRow has the values that an object had before the change at RV, which are sorted.
type AttributesRow struct {
	RV     string
	Values []string
}

// AttributesAt returns the values in the history's index that the event's object had at the
// resourceVersion since, for a reader that needs the event and of whose state the object, by its
// UID, is a part. If changed is false, they are Object's. known is false if the history does
// not have them: it did not record values of this spec at since, or too many changes, or a corrupt
// one, came in between.
func (e Event) AttributesAt(spec, since string) (values []string, changed, known bool) {
	a := &e.Attributes
	if cmp, ok := object.CompareRV(since, a.Since); !ok || cmp < 0 || a.Spec != spec || spec == "" {
		return nil, false, false
	}
	for _, row := range a.Rows {
		if object.NewerRV(row.RV, since) {
			return row.Values, true, true
		}
	}
	return nil, false, true
}
