package informer

import (
	"bytes"
	"cmp"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// difference holds the changes of a batch.
type difference struct {
	changes []store.Change
	notes   []note // in the order of arrival; none if the loop has no handlers
	counts  Counts
	read    store.Lookup // has the states before the changes

	unknown   bool // the state before a change is not known, because its record is corrupt
	corrected bool // a change is a correction

	gap *store.Gap // over the keys that change more than once; nil for none
}

// skip extends the gap by the states from the first change of a key on and before its last one, two
// resourceVersions that are empty if they are not known.
func (d *difference) skip(first, last string) {
	if d.gap == nil {
		d.gap = &store.Gap{First: first, Last: last}
		return
	}
	if cmp, ok := object.CompareRV(first, d.gap.First); first == "" || ok && cmp < 0 {
		d.gap.First = first
	}
	if cmp, ok := object.CompareRV(last, d.gap.Last); last == "" || ok && cmp > 0 {
		d.gap.Last = last
	}
}

// difference computes the changes that a batch makes to the newest state of the collection. It
// writes nothing.
func (l *Loop) difference(b deltafifo.Batch) (difference, error) {
	var d difference
	d.read = l.opts.Collection.Lookup()
	for _, kd := range b.Deltas {
		if err := l.reconcileKey(d.read, kd, b.List, &d); err != nil {
			return difference{}, err
		}
	}
	slices.SortFunc(d.notes, func(a, b note) int { return cmp.Compare(a.arrived, b.arrived) })
	return d, nil
}

// reconcileKey adds the changes of one key's deltas to d.
func (l *Loop) reconcileKey(now store.Lookup, kd deltafifo.KeyDeltas, isList bool, d *difference) error {
	old, current, at, err := l.stored(now, kd)
	if err != nil {
		return err
	}
	shown := at != absent // handlers have seen the object, even if its record is corrupt now
	before := current
	var change store.Change // without a key if no delta has an effect
	deltas, arrived := kd.Deltas, kd.Arrived
	effects, first, rv := 0, "", "" // of the deltas: how many change the key, and the resourceVersions
	if isList {
		last := len(deltas) - 1 // a list becomes visible at its end, so only the newest delta matters
		deltas, arrived = deltas[last:], arrived[last:]
	}
	for i, delta := range deltas {
		o, _ := delta.Object.(*object.Object)
		corrected := delta.Type == deltafifo.Corrected
		remove := delta.Type == cache.Deleted || corrected && o == nil
		switch {
		case o == nil && !remove:
			continue
		// A list and a correction are applied to any stored state; an event must be newer.
		case !isList && !corrected && o != nil && stale(delta.Type, o, old) && !l.rewritten(now, delta.Type, o, old):
			d.counts.Stale++
			continue
		case corrected && o != nil: // events up to this state may still arrive
			old = store.Header{UID: string(o.GetUID()), RV: o.GetResourceVersion()}
		case corrected:
			old = store.Header{} // the stored state was wrong: compare no event with it
		}
		d.corrected = d.corrected || corrected
		if rv = ""; o != nil {
			rv = o.GetResourceVersion()
		}
		if effects++; effects == 1 {
			first = rv
		}
		n := note{kind: noteAdd, key: kd.Key, old: current, arrived: arrived[i]}
		if !isList { // the objects of a list are read from the store when they are delivered
			n.new = l.value(o)
		}
		change = store.Change{Key: kd.Key, Object: o}
		switch {
		case remove:
			n.kind = noteNone
			if shown {
				n.kind = noteDelete
			}
			change.Object, change.RV = nil, rv
			shown, current = false, nil
		case current != nil:
			n.kind = noteUpdate
			fallthrough
		default:
			shown, current = true, n.new
		}
		if l.noted() && (isList || n.kind != noteNone) {
			d.notes = append(d.notes, n)
		}
	}
	if effects > 1 {
		d.skip(first, rv)
	}
	gone := change.Object == nil
	switch {
	case change.Key == "" || at == absent && gone && !isList:
		return nil
	case at == absent && gone: // an earlier part of the list has added the key
	case at == absent:
		d.counts.Added++
	case gone:
		d.counts.Deleted++
	default:
		d.counts.Updated++
	}
	d.changes = append(d.changes, change)
	d.unknown = d.unknown || at != absent && before == nil
	return nil
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

// rewritten reports whether an event is a new state of the stored object under the same
// resourceVersion. Only fake clients send such events; from a real server it is a replay.
func (l *Loop) rewritten(now store.Lookup, t cache.DeltaType, o *object.Object, old store.Header) bool {
	if o.GetResourceVersion() != old.RV || l.opts.Unversioned == nil || !l.opts.Unversioned() {
		return false
	}
	if t == cache.Updated {
		return true
	}
	stored, err := now.Get(o.Key())
	return err != nil || !bytes.Equal(stored.Raw(), o.Raw())
}

// value returns an object for the handlers and the recorder; nil if there is none, or neither.
func (l *Loop) value(o *object.Object) *value {
	switch {
	case o == nil || !l.noted():
		return nil
	case l.opts.Processor == nil:
		return &value{object: o}
	}
	return &value{object: o, decode: l.opts.Processor.opts.Decoding()}
}

// stored returns the stored header of a key, and the stored state for the handlers and the recorder,
// which they got last: nil if there is none, or if its record is corrupt, which to a handler is the same
// as unknown.
func (l *Loop) stored(now store.Lookup, kd deltafifo.KeyDeltas) (store.Header, *value, presence, error) {
	switch {
	case l.noted():
		o, err := now.Get(kd.Key)
		at, err := presenceOf(err)
		switch at {
		case readable:
			return store.Header{UID: string(o.GetUID()), RV: o.GetResourceVersion()}, l.value(o), at, nil
		case absent:
			return store.Header{}, nil, at, err
		}
		// The header of a corrupt record may be readable.
	case kd.Held != nil:
		return store.Header{UID: kd.Held.UID, RV: kd.Held.RV}, nil, readable, nil
	}
	h, at, err := header(now, kd.Key)
	return h, nil, at, err
}
