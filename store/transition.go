package store

import "github.com/snapcache/snapcache/object"

// Transition is one change of one object as a watch reports it, with the state before it. In
// contrast to the entries of a history there is one for each event, also if the object changes again
// in the same batch.
type Transition struct {
	Type EventType
	Key  string

	// RV is the resourceVersion of the event: for a deletion, that of the deletion.
	RV string

	// Object is the new state or, in a deletion, the object that the event carries; nil if it
	// carries none.
	Object *object.Object

	// Old is the state before; nil if there was none, or it is not known.
	Old *object.Object
}
