package pipeline

import (
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// keyState is the state of one key while a batch's deltas are applied to it.
type keyState struct {
	stored   presence // of the record before the batch
	presence presence
	object   *object.Object // nil if it is absent, corrupt or was not read
	version  store.Header   // an event must be newer; empty if every event counts

	taken       int    // how many deltas changed the key
	first, last string // resourceVersions of the first and the newest of them, empty if not known
}

// outcome is the effect of a delta on a key.
type outcome int

const (
	ignored outcome = iota // the delta has no object
	replay                 // the event is older than the stored object
	taken
)

// take applies a delta, and returns its transition, without a type if the key was and stays absent.
// rewritten reports whether an event that is not newer is a new state all the same.
func (k *keyState) take(
	d cache.Delta, list bool, rewritten func(cache.DeltaType, *object.Object) bool,
) (store.Transition, outcome) {
	o, _ := d.Object.(*object.Object)
	corrected := d.Type == deltafifo.Corrected
	remove := d.Type == cache.Deleted || corrected && o == nil
	switch {
	case o == nil && !remove:
		return store.Transition{}, ignored
	// A list and a correction are applied to any stored state; an event must be newer.
	case !list && !corrected && o != nil && stale(d.Type, o, k.version) && !rewritten(d.Type, o):
		return store.Transition{}, replay
	case corrected: // events up to this state may still arrive; with a wrong state, none is compared
		k.version = headerOf(o)
	}
	t := store.Transition{Type: store.Modified, RV: headerOf(o).RV, Object: o, Old: k.object}
	switch {
	case remove && k.presence == absent:
		t.Type = ""
	case remove:
		t.Type = store.Deleted
	case k.presence == absent:
		t.Type = store.Added
	}
	k.presence, k.object = readable, o
	if remove {
		k.presence, k.object = absent, nil
	}
	if k.taken++; k.taken == 1 {
		k.first = t.RV
	}
	k.last = t.RV
	return t, taken
}

// headerOf returns the version of an object, empty if there is none.
func headerOf(o *object.Object) store.Header {
	if o == nil {
		return store.Header{}
	}
	return store.Header{UID: string(o.GetUID()), RV: o.GetResourceVersion()}
}

// stale reports whether an event is not newer than the stored object. A delete may carry the
// resourceVersion of the object that it deletes: Kubernetes assigns a new one, other servers of its
// API may not.
func stale(t cache.DeltaType, o *object.Object, old store.Header) bool {
	if old.RV == "" {
		return false
	}
	if cmp, ok := object.CompareRV(o.GetResourceVersion(), old.RV); ok {
		return cmp < 0 || cmp == 0 && t != cache.Deleted
	}
	return o.GetResourceVersion() == old.RV && string(o.GetUID()) == old.UID && t != cache.Deleted
}
