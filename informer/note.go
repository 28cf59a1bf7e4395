package informer

import (
	"github.com/snapcache/snapcache/object"
)

type noteKind uint8

const (
	noteAdd noteKind = iota
	noteUpdate
	noteDelete
	noteNone // no call: what a list added is not in it any more

	// The rest are one call for each object of a listing.

	noteInitial // OnAdd, as the handler's initial list
	noteListed  // OnUpdate, or OnAdd if the listing has no old object
	noteResync  // OnUpdate from the object to itself
)

// note is one call of a handler, or one for each object of a listing.
type note struct {
	kind noteKind
	key  string

	// old is what the handler saw last, nil if that is unknown. new is the object as it
	// is now, in a delete as the event has it; nil if a list found the object missing,
	// and in what becomes a listing.
	old, new *value

	listing *listing
	arrived uint64 // position of the event in the stream, see deltafifo.KeyDeltas
}

// Decode makes what is handed out of what is stored.
type Decode func(*object.Object) (any, error)

// value is an object on its way to a handler with what decodes it, which is of the
// same time: see [ProcessorOptions].Decoding.
type value struct {
	object *object.Object
	decode Decode
}

// get returns the object decoded.
func (v *value) get() (any, error) { return v.decode(v.object) }
