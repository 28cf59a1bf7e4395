package informer

import (
	"sync/atomic"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

type noteKind int

const (
	noteAdd noteKind = iota
	noteUpdate
	noteDelete
)

// note is one call of a handler.
type note struct {
	kind noteKind
	key  string

	// old is what the handler saw last, nil where that is unknown. new is the object
	// as it is now, in a delete as the event has it; nil where only a list noticed.
	old, new *value

	initial bool // part of the handler's initial list
}

// value is an object on its way to a handler. That of an initial list or a resync
// is read from the store when it is delivered, so that a handler's backlog costs
// keys and not objects; pin gives it the object before the store forgets it.
type value struct {
	key    string
	object atomic.Pointer[object.Object] // nil until it is known
}

// valueOf returns the value of an object that is at hand.
func valueOf(o *object.Object) *value {
	v := &value{key: o.Key()}
	v.object.Store(o)
	return v
}

// pin keeps the object that the store is about to change.
func (v *value) pin(o *object.Object) { v.object.CompareAndSwap(nil, o) }

// read returns the object.
func (v *value) read(c store.Collection) (*object.Object, error) {
	if o := v.object.Load(); o != nil {
		return o, nil
	}
	o, err := v.get(c)
	// Pinning comes before the change: what was read is good unless it was pinned.
	if pinned := v.object.Load(); pinned != nil {
		return pinned, nil
	}
	return o, err
}

func (v *value) get(c store.Collection) (*object.Object, error) {
	view, err := c.View()
	if err != nil {
		return nil, err
	}
	defer view.Close()
	return view.Get(v.key)
}
