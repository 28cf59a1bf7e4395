package informer

import (
	"cmp"
	"errors"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// difference holds the changes of a batch.
type difference struct {
	changes []store.Change
	notes   []note // in the order of arrival
	counts  Counts
}

// difference computes the changes that a batch makes to the newest state of the collection. It
// writes nothing.
func (l *Loop) difference(b deltafifo.Batch) (difference, error) {
	var d difference
	now, end, err := lookups(l.opts.Collection)
	if err != nil {
		return d, err
	}
	defer end()
	for _, kd := range b.Deltas {
		if err := l.reconcileKey(now, kd, b.List, &d); err != nil {
			return difference{}, err
		}
	}
	slices.SortFunc(d.notes, func(a, b note) int { return cmp.Compare(a.arrived, b.arrived) })
	return d, nil
}

// reconcileKey adds the changes of one key's deltas to d.
func (l *Loop) reconcileKey(now lookup, kd deltafifo.KeyDeltas, isList bool, d *difference) error {
	old, at, err := header(now, kd.Key)
	if err != nil {
		return err
	}
	exists := at == readable
	shown := at != absent // handlers have seen the object, even if its record is corrupt now
	var current *value    // the state that handlers got last; nil if unknown
	if exists && l.opts.Processor != nil {
		if current, err = l.stored(now, kd.Key); err != nil {
			return err
		}
	}
	var result *object.Object
	deletion := "" // resourceVersion of the newest deletion
	changed := false
	deltas, arrived := kd.Deltas, kd.Arrived
	if isList {
		last := len(deltas) - 1 // a list becomes visible at its end, so only the newest delta matters
		deltas, arrived = deltas[last:], arrived[last:]
	}
	for i, delta := range deltas {
		o, _ := delta.Object.(*object.Object)
		corrected := delta.Type == deltafifo.Corrected
		// A list and a correction are applied to any stored state; an event must be newer.
		if !isList && !corrected && o != nil && stale(delta.Type, o, old) && !l.rewritten(now, delta.Type, o, old) {
			d.counts.Stale++
			continue
		}
		if delta.Type == cache.Deleted || corrected && o == nil {
			if shown {
				n := note{kind: noteDelete, key: kd.Key, old: current, arrived: arrived[i]}
				if o != nil {
					n.new = l.value(o)
				}
				d.note(l, n)
			} else if isList {
				d.note(l, note{kind: noteNone, key: kd.Key, arrived: arrived[i]})
			}
			result, exists, shown, changed, current = nil, false, false, true, nil
			if deletion = ""; o != nil {
				deletion = o.GetResourceVersion()
			}
			if corrected {
				old = store.Header{} // the stored state was wrong: compare no event with it
			}
			continue
		}
		if o == nil {
			continue
		}
		next := l.value(o)
		n := note{kind: noteAdd, key: kd.Key, old: current, new: next, arrived: arrived[i]}
		if current != nil {
			n.kind = noteUpdate
		}
		if isList {
			// Handlers get a list at its end: the object is read from the store again when it is
			// delivered.
			n.new = nil
		}
		d.note(l, n)
		result, exists, shown, changed, current = o, true, true, true, next
		if corrected {
			// Events up to this state may still arrive.
			old = store.Header{UID: string(o.GetUID()), RV: o.GetResourceVersion()}
		}
	}
	switch {
	case !changed || at == absent && !exists && !isList:
		return nil
	case at == absent && !exists: // an earlier part of the list has added the key
	case at == absent:
		d.counts.Added++
	case !exists:
		d.counts.Deleted++
	default:
		d.counts.Updated++
	}
	ch := store.Change{Key: kd.Key, Object: result}
	if result == nil {
		ch.RV = deletion
	}
	d.changes = append(d.changes, ch)
	return nil
}

func (d *difference) note(l *Loop, n note) {
	if l.opts.Processor != nil {
		d.notes = append(d.notes, n)
	}
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

// value returns an object for the handlers; nil if the loop has no handlers.
func (l *Loop) value(o *object.Object) *value {
	if l.opts.Processor == nil {
		return nil
	}
	return &value{o, l.opts.Processor.opts.Decoding()}
}

// stored returns the stored state of a key, which handlers got last; nil if its record is corrupt.
func (l *Loop) stored(now lookup, key string) (*value, error) {
	o, err := now.Get(key)
	if err != nil {
		if errors.As(err, new(*store.CorruptionError)) {
			return nil, nil //nolint:nilnil // for a handler, corrupt is the same as unknown
		}
		return nil, err
	}
	return l.value(o), nil
}
