package informer

import (
	"errors"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// difference is what a batch changes.
type difference struct {
	changes []store.Change
	notes   []note
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
	first := !l.opts.Collection.State().Synced
	for _, kd := range b.Deltas {
		if err := l.key(now, kd, b.List, first, &d); err != nil {
			return difference{}, err
		}
	}
	return d, nil
}

// key works out what the deltas of one key change.
func (l *Loop) key(now lookup, kd deltafifo.KeyDeltas, isList, first bool, d *difference) error {
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
	deltas := kd.Deltas
	if isList {
		deltas = deltas[len(deltas)-1:] // nobody sees a list before it is complete
	}
	for _, delta := range deltas {
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
		if !isList && !corrected && o != nil && stale(delta.Type, o, old) {
			d.counts.Stale++
			continue
		}
		if delta.Type == cache.Deleted || (corrected || delta.Type == deltafifo.Repaired) && o == nil {
			if shown {
				d.note(l, l.deletedNote(kd.Key, o, current))
			} else if isList {
				d.note(l, note{kind: noteNone, key: kd.Key})
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
		next := &value{key: kd.Key}
		if !isList {
			next = l.value(o)
		} // else it is read from the store: the handlers wait for the whole list
		if current != nil {
			d.note(l, note{kind: noteUpdate, key: kd.Key, old: current, new: next})
		} else {
			d.note(l, note{kind: noteAdd, key: kd.Key, new: next, initial: isList && first})
		}
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
	return valueOf(o, l.opts.Processor.opts.Decoding())
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

// deletedNote is what handlers hear of a delete: the object as the event has it,
// or, where a list only found it missing, what was known of it.
func (l *Loop) deletedNote(key string, deleted *object.Object, current *value) note {
	n := note{kind: noteDelete, key: key, old: current}
	if deleted != nil {
		n.new = l.value(deleted)
	}
	return n
}
