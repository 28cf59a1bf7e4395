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
	noteNone // no call: what a list added is not in it any more
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

// Decode makes what is handed out of what is stored.
type Decode func(*object.Object) (any, error)

// value is an object on its way to a handler. That of an initial list or a resync
// is read from the store when it is delivered, so that a handler's backlog costs
// keys and not objects; pin gives it the object before the store forgets it.
type value struct {
	key    string
	loaded atomic.Pointer[loaded] // nil until it is known
}

// loaded is an object with what decodes it, which is of the same time: see
// [ProcessorOptions].Decoding.
type loaded struct {
	object *object.Object
	decode Decode
}

// valueOf returns the value of an object that is at hand.
func valueOf(o *object.Object, decode Decode) *value {
	v := &value{key: o.Key()}
	v.loaded.Store(&loaded{o, decode})
	return v
}

// pin keeps the object that the store is about to change.
func (v *value) pin(l *loaded) { v.loaded.CompareAndSwap(nil, l) }

// get returns the object decoded.
func (v *value) get(p *Processor) (any, error) {
	l := v.loaded.Load()
	if l == nil {
		decode := p.opts.Decoding()
		o, err := v.read(p.opts.Collection)
		// Pinning comes before the change: what was read is good unless it was pinned.
		if l = v.loaded.Load(); l == nil {
			if err != nil {
				return nil, err
			}
			l = &loaded{o, decode}
		}
	}
	return l.decode(l.object)
}

func (v *value) read(c store.Collection) (*object.Object, error) {
	view, err := c.View()
	if err != nil {
		return nil, err
	}
	defer view.Close()
	return view.Get(v.key)
}
