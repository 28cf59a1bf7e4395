package store

import (
	"time"

	"github.com/snapcache/snapcache/object"
)

// Counts holds how many objects changed.
type Counts struct {
	Added, Updated, Deleted int

	Stale int // events older than the stored object, as a resumed watch replays them
}

// Add adds the counts of o.
func (c *Counts) Add(o Counts) {
	c.Added += o.Added
	c.Updated += o.Updated
	c.Deleted += o.Deleted
	c.Stale += o.Stale
}

// Changed returns how many objects were added, updated and deleted.
func (c Counts) Changed() int { return c.Added + c.Updated + c.Deleted }

// Changeset has the changes of a collection by a batch of events, or by a complete list, for its handlers,
// watches and metrics.
type Changeset struct {
	// Transitions are in the order of the stream. A list's are the deletions by key, then the
	// other objects in the list's order, without their states: the old ones are in the store until the
	// list becomes visible, the new ones from then on.
	Transitions []Transition

	List bool
	RV   string // the collection is complete up to it afterwards

	// Complete is set if Transitions has each event since the changeset before, with the state before
	// the event; never for a list.
	Complete bool

	// Unordered is set if a change may not be after all changes before.
	Unordered bool

	Counts Counts

	// Began is when the batch, or the last part of the list, was taken: the collection had the server's
	// state then. It is zero if it brought nothing, as events that a proxy repeats.
	Began time.Time
}

// Transition is one change of one object as a watch reports it, with the state before it. In
// contrast to the entries of a history there is one for each event, also if the object changes again
// in the same batch.
type Transition struct {
	Type EventType
	Key  string

	// RV is the resourceVersion of the event: for a deletion, the deletion's.
	RV string

	// Object is the new state or, in a deletion, the object that the event carries; nil if it
	// carries none.
	Object *object.Object

	// Old is the state before; nil if there was none, or it is not known.
	Old *object.Object
}
