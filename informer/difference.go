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

// difference is what a batch changes.
type difference struct {
	changes []store.Change
	notes   []note // in the order of arrival
	counts  Counts
}

// difference works out what a batch changes in the collection as it is now.
// Nothing is written.
func (l *Loop) difference(b deltafifo.Batch) (difference, error) {
	var d difference
	now, end, err := lookups(l.opts.Collection)
	if err != nil {
		return d, err
	}
	defer end()
	for _, kd := range b.Deltas {
		if err := l.key(now, kd, b.List, &d); err != nil {
			return difference{}, err
		}
	}
	slices.SortFunc(d.notes, func(a, b note) int { return cmp.Compare(a.arrived, b.arrived) })
	return d, nil
}

// key works out what the deltas of one key change.
func (l *Loop) key(now lookup, kd deltafifo.KeyDeltas, isList bool, d *difference) error {
	old, at, err := header(now, kd.Key)
	if err != nil {
		return err
	}
	exists := at == readable
	shown := at != absent // to handlers, also what is damaged by now
	var current *value    // what handlers saw last of this key; nil where that is unknown
	if exists && l.opts.Processor != nil {
		if current, err = l.stored(now, kd.Key); err != nil {
			return err
		}
	}
	var result *object.Object
	deletion := "" // resourceVersion of the newest one
	changed := false
	deltas, arrived := kd.Deltas, kd.Arrived
	if isList {
		last := len(deltas) - 1 // no one sees a list before it is complete
		deltas, arrived = deltas[last:], arrived[last:]
	}
	for i, delta := range deltas {
		o, _ := delta.Object.(*object.Object)
		if delta.Type == deltafifo.Repaired && (at != damaged || changed) {
			// The server was asked at some time in the past. If an event of this key came
			// since, that is newer or will be followed by one that is, and an object that
			// was deleted must not come back: nobody would say again that it is gone.
			continue
		}
		corrected := delta.Type == deltafifo.Corrected
		if corrected && o != nil && exists && old.UID == string(o.GetUID()) && old.RV == o.GetResourceVersion() {
			continue // it is right by now
		}
		// A list speaks of what it saw, and a correction of what is there, whatever is
		// stored; an event must be newer.
		if !isList && !corrected && o != nil && stale(delta.Type, o, old) && !l.rewritten(now, delta.Type, o, old) {
			d.counts.Stale++
			continue
		}
		if delta.Type == cache.Deleted || (corrected || delta.Type == deltafifo.Repaired) && o == nil {
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
			// Read from the store again: the handlers wait for the whole list.
			n.new = nil
		}
		d.note(l, n)
		result, exists, shown, changed, current = o, true, true, true, next
		if corrected || delta.Type == deltafifo.Repaired {
			// The watch may still be on its way to this state.
			old = store.Header{UID: string(o.GetUID()), RV: o.GetResourceVersion()}
		}
	}
	switch {
	case !changed || at == absent && !exists && !isList:
		return nil
	case at == absent && !exists: // an earlier part of the list had it
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

// stale says that an event is not newer than the stored object. A delete may
// carry the resourceVersion of what it deletes: a real server counts on, others
// that speak its API need not.
func stale(t cache.DeltaType, o *object.Object, old store.Header) bool {
	if old.RV == "" {
		return false
	}
	if cmp, ok := object.CompareRV(o.GetResourceVersion(), old.RV); ok {
		return cmp < 0 || cmp == 0 && t != cache.Deleted
	}
	return o.GetResourceVersion() == old.RV && string(o.GetUID()) == old.UID && t != cache.Deleted
}

// value is an object for the handlers; nil where there are none.
func (l *Loop) value(o *object.Object) *value {
	if l.opts.Processor == nil {
		return nil
	}
	return &value{o, l.opts.Processor.opts.Decoding()}
}

// stored returns what handlers saw last of a key; nil where its record is damaged.
func (l *Loop) stored(now lookup, key string) (*value, error) {
	o, err := now.Get(key)
	if err != nil {
		if errors.As(err, new(*store.CorruptionError)) {
			return nil, nil //nolint:nilnil // damaged is the same as unknown to a handler
		}
		return nil, err
	}
	return l.value(o), nil
}
