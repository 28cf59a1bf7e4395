package informer

import (
	"sync"

	"github.com/snapcache/snapcache/object"
)

type noteKind uint8

const (
	noteAdd noteKind = iota
	noteUpdate
	noteDelete
	noteNone // no call: the list has removed an object that it had added

	// The kinds below are one call for each object of a listing.

	noteInitial // OnAdd, as the handler's initial list
	noteListed  // OnUpdate, or OnAdd if the listing has no old object
	noteResync  // OnUpdate from the object to itself
)

// note is a notification: one call of a handler, or one for each object of a listing.
type note struct {
	kind noteKind
	key  string

	// old is the state that the handler got last; nil if unknown. new is the new state or, in a
	// delete, the event's object. new is nil if a list found the object missing, and in the notes
	// that become a listing.
	old, new *value

	listing *listing
	arrived uint64 // position of the event in the stream, see deltafifo.KeyDeltas
}

// Decode converts a stored object to the value that handlers and readers get.
type Decode func(*object.Object) (any, error)

// value is a stored object for the handlers, with its decoder: see [ProcessorOptions].Decoding. The
// handlers share it, so it is decoded once.
type value struct {
	object *object.Object
	decode Decode

	once    sync.Once
	decoded any
	err     error
}

// get returns the decoded object. It is safe for concurrent use.
func (v *value) get() (any, error) {
	v.once.Do(func() { v.decoded, v.err = v.decode(v.object) })
	return v.decoded, v.err
}
