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
		if err := l.reconcile(d.read, kd, b.List, &d); err != nil {
			return difference{}, err
		}
	}
	slices.SortFunc(d.notes, func(a, b note) int { return cmp.Compare(a.arrived, b.arrived) })
	return d, nil
}

// reconcile adds the changes of one key's deltas to d.
func (l *Loop) reconcile(now store.Lookup, kd deltafifo.KeyDeltas, list bool, d *difference) error {
	k, err := l.stored(now, kd)
	if err != nil {
		return err
	}
	current := l.value(k.object)
	rewritten := func(t cache.DeltaType, o *object.Object) bool { return l.rewritten(now, t, o, k.version) }
	deltas, arrived := kd.Deltas, kd.Arrived
	if list {
		last := len(deltas) - 1 // a list becomes visible at its end, so only the newest delta matters
		deltas, arrived = deltas[last:], arrived[last:]
	}
	for i, delta := range deltas {
		t, out := k.take(delta, list, rewritten)
		if out == replay {
			d.counts.Stale++
		}
		if out != taken {
			continue
		}
		d.corrected = d.corrected || delta.Type == deltafifo.Corrected
		n := note{kind: noteKinds[t.Type], key: kd.Key, old: current, arrived: arrived[i]}
		if !list { // the objects of a list are read from the store when they are delivered
			n.new = l.value(t.Object)
		}
		current = n.new
		if k.presence == absent {
			current = nil
		}
		if l.noted() && (list || n.kind != noteNone) {
			d.notes = append(d.notes, n)
		}
	}
	d.change(kd.Key, k, list)
	return nil
}

// change adds the change of a key to d.
func (d *difference) change(key string, k keyState, list bool) {
	if k.taken > 1 {
		d.skip(k.first, k.last)
	}
	c := store.Change{Key: key, Object: k.object}
	if k.presence == absent {
		c.RV = k.last
	}
	switch {
	case k.taken == 0, k.stored == absent && k.presence == absent && !list:
		return
	case k.stored == absent && k.presence == absent: // an earlier part of the list has added the key
	case k.stored == absent:
		d.counts.Added++
	case k.presence == absent:
		d.counts.Deleted++
	default:
		d.counts.Updated++
	}
	d.changes = append(d.changes, c)
	d.unknown = d.unknown || k.stored == corrupt
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

// stored returns the stored state of a key, with the object if it is for the handlers or the
// recorder, which got it last. The header of a corrupt record may be readable.
func (l *Loop) stored(now store.Lookup, kd deltafifo.KeyDeltas) (keyState, error) {
	switch {
	case l.noted():
		o, err := now.Get(kd.Key)
		at, err := presenceOf(err)
		if at != corrupt {
			return keyState{stored: at, presence: at, object: o, version: headerOf(o)}, err
		}
		h, _, err := header(now, kd.Key)
		return keyState{stored: corrupt, presence: corrupt, version: h}, err
	case kd.Held != nil:
		return keyState{stored: readable, presence: readable, version: store.Header{UID: kd.Held.UID, RV: kd.Held.RV}}, nil
	}
	h, at, err := header(now, kd.Key)
	return keyState{stored: at, presence: at, version: h}, err
}
