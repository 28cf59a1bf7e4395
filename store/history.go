package store

import (
	"fmt"
	"time"

	"github.com/snapcache/snapcache/object"
)

// Defaults of how much history a collection keeps.
const (
	DefaultHistoryRetention = 24 * time.Hour
	DefaultHistoryBytes     = 16 << 20
)

// EventType says what happened to a key, as watch events of the Kubernetes API do.
type EventType string

// The types of events.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
)

// Event is one entry of a collection's history: the newest change of a key, or a
// deletion. Changes that a newer one of the same key came after are not in it.
type Event struct {
	// RV is the resourceVersion of the change. A deletion that a list found out has
	// a number of its own between the checkpoint before and the list.
	RV string

	// Time is when the change was proven to the store, in whole seconds of the local
	// clock: [Checkpoint.Proven] of its batch.
	Time time.Time

	Key string

	// Object is what the key holds, or held last where Deleted says that it is gone.
	Object  *object.Object
	Deleted bool

	// FirstRV and FirstTime are RV and Time of the change with which the object, by
	// its UID, appeared; both are zero where that was before the history.
	FirstRV   string
	FirstTime time.Time
}

// Since returns what the event is to somebody who knows all up to rv. ok is false
// where it is nothing: the object came after rv and went again.
func (e Event) Since(rv string) (t EventType, ok bool) {
	cmp, comparable := object.CompareRV(e.FirstRV, rv)
	return e.seen(comparable && cmp > 0)
}

// SinceTime is Since for somebody who knows all that came before t.
func (e Event) SinceTime(t time.Time) (_ EventType, ok bool) {
	return e.seen(!e.FirstTime.IsZero() && !e.FirstTime.Before(t))
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

// Horizon is where a collection's history begins: changes after RV can be told. It
// is zero where there is no history: before the first complete list.
type Horizon struct {
	RV   string    `json:"resourceVersion"`
	Time time.Time `json:"time"` // of what is at RV, see [Event.Time]
}

// TooOldError says that changes since an RV can't be told any more. It is what a
// kube-apiserver answers 410 for: whoever gets it has to read the collection anew.
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

// ContinuesHistory says whether a complete list with checkpoint next, under the
// scope of what is stored, goes on from state: the history before it then stays
// valid, and what the list changes is a part of it. Otherwise the history begins
// anew at the list, because the numbers before it may mean something else now.
func ContinuesHistory(state State, next Checkpoint) bool {
	cmp, ok := object.CompareRV(state.RV, next.RV)
	return state.Synced && ok && cmp <= 0 && state.Cluster == next.Cluster && Reason(next.ListReason).TrustsVersions()
}
