package pipeline

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
	arrived []arrived      // the transitions; none if no sink wants them
	same    []store.Change // listed objects that are stored as they are
	counts  store.Counts
	read    store.Lookup // has the states before the changes

	unknown   bool // the state before a change is not known, because its record is corrupt
	corrected bool // a change is a correction

	gap *store.Gap // over the keys that change more than once; nil for none
}

// arrived is a transition and its position in the stream, see [deltafifo.KeyDeltas].
type arrived struct {
	store.Transition
	at uint64
}

// transitions returns the transitions in the order of the stream.
func (d *difference) transitions() []store.Transition {
	slices.SortFunc(d.arrived, func(a, b arrived) int { return cmp.Compare(a.at, b.at) })
	ts := make([]store.Transition, len(d.arrived))
	for i, a := range d.arrived {
		ts[i] = a.Transition
	}
	return ts
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
		if o := unchanged(d.read, b, kd); o != nil {
			d.same = append(d.same, store.Change{Key: kd.Key, Object: o})
			continue
		}
		if err := l.reconcile(d.read, kd, b.List, &d); err != nil {
			return difference{}, err
		}
	}
	return d, nil
}

// unchanged returns the item of a list if it is stored with the same bytes, else nil. Of a list that does not
// trust versions only the rest is written, and reaches the handlers: the state before each change is in
// memory until then.
func unchanged(now store.Lookup, b deltafifo.Batch, kd deltafifo.KeyDeltas) *object.Object {
	if !b.List || !b.Replace.Force || kd.Repeated { // an earlier part may have changed it
		return nil
	}
	delta := kd.Deltas[len(kd.Deltas)-1]
	o, _ := delta.Object.(*object.Object)
	if delta.Type != cache.Replaced || o == nil {
		return nil
	}
	if h, at, err := header(now, kd.Key); err != nil || at != readable || h.RV != o.GetResourceVersion() {
		return nil
	}
	stored, err := now.Get(kd.Key)
	if err != nil || !bytes.Equal(stored.Raw(), o.Raw()) {
		return nil // another read of it reports the error
	}
	return o
}

// reconcile adds the changes of one key's deltas to d.
func (l *Loop) reconcile(now store.Lookup, kd deltafifo.KeyDeltas, list bool, d *difference) error {
	k, err := l.stored(now, kd, list)
	if err != nil {
		return err
	}
	rewritten := func(t cache.DeltaType, o *object.Object) bool { return l.rewritten(now, t, o, k.version) }
	first := 0
	if list { // it becomes visible at its end, so only the newest delta matters
		first = len(kd.Deltas) - 1
	}
	for i, delta := range kd.Deltas[first:] {
		t, out := k.take(delta, list, rewritten)
		if out == replay {
			d.counts.Stale++
		}
		if out != taken {
			continue
		}
		d.corrected = d.corrected || delta.Type == deltafifo.Corrected
		if t.Key = kd.Key; list {
			t.Object, t.Old = nil, nil // they are read from the store, before and after the list is visible
		}
		if l.wanted && (list || t.Type != "") {
			d.arrived = append(d.arrived, arrived{t, kd.Arrived[first+i]})
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

// stored returns the stored state of a key, with the object if a sink wants the transitions of events. The
// header of a corrupt record may be readable.
func (l *Loop) stored(now store.Lookup, kd deltafifo.KeyDeltas, list bool) (keyState, error) {
	switch {
	case l.wanted && !list:
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
