package kubeapi

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/kubeapi/internal/selector"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Limits of [Events].
const (
	// EventsAge is how long events are kept if their bytes allow it: longer than a kube-apiserver
	// does for a type with many changes.
	EventsAge = 5 * time.Minute

	// AttributesAge is how long the store's history keeps attributes after the last client with a
	// selector has watched: longer than any history.
	AttributesAge = 30 * 24 * time.Hour

	// EventsBytes limits the events of a collection, in bytes.
	EventsBytes = 8 << 20

	// eventOverhead is the memory of an event besides its objects.
	eventOverhead = 300
)

// Events holds the newest events of a collection, each as the server sent it, in ascending order of
// resourceVersions. It is filled by the writer of the collection after each batch is in the store,
// and read by watches. It is safe for concurrent use.
//
// It keeps events as long as a client may ask for them: while there is a watch, and for EventsAge after
// the last watch or list. A collection without clients pays nothing.
type Events struct {
	maxBytes int64
	clock    clock.PassiveClock

	mu       sync.Mutex
	cursors  int       // that are open
	until    time.Time // events are kept until then, if no cursor is open
	skipping bool      // a batch is being stored that is not recorded

	attributes time.Time // the history keeps attributes until then; zero if that was never asked
	bare       bool      // a batch is being stored without attributes

	epoch   int    // counts the times that resourceVersions have lost their meaning
	floor   string // all events after it are there
	head    string // up to which the events are complete; empty before that is known
	events  []*event
	added   int               // how many events there ever were
	newest  map[string]*event // of each key
	pending []store.Transition
	bytes   int64
	changed chan struct{} // closed at the next change; nil if no one waits for it

	followers map[string]map[*cursor]struct{} // the cursors that follow, by prefix
}

// event is one event with values that watches derive from it, once for all of them. The rest is immutable.
type event struct {
	store.Transition
	at    time.Time
	bytes int64

	once  sync.Once
	known attributes

	located  sync.Once
	metadata []byte // a part of the object's JSON, so that it takes no memory
}

// NewEvents returns the events of a collection that is at the resourceVersion rv.
func NewEvents(rv string, c clock.PassiveClock) *Events {
	return &Events{
		maxBytes: EventsBytes, clock: c, floor: rv, head: rv, newest: map[string]*event{},
		followers: map[string]map[*cursor]struct{}{},
	}
}

// Wanted reports whether the next batch is to be recorded; a list never is.
func (e *Events) Wanted(list bool) bool {
	if list {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	wanted := e.wantedLocked()
	if !wanted && len(e.events) > 0 {
		e.resetLocked(e.head)
	}
	e.skipping = !wanted
	return wanted
}

// HasClients reports whether a client follows the events, or may soon.
func (e *Events) HasClients() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wantedLocked()
}

func (e *Events) wantedLocked() bool { return e.cursors > 0 || e.clock.Now().Before(e.until) }

// expect keeps events for a client that may watch soon, from the resourceVersion of its list, and
// attributes in the history for that long, zero for a client that needs none. If a batch is being stored
// without them, the returned channel is closed when that is over: a list of before it would have no
// events. Otherwise it is nil.
func (e *Events) expect(attributes time.Duration) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	lacks := e.skipping && !e.wantedLocked() || e.bare && attributes > 0 && !now.Before(e.attributes)
	e.until = now.Add(EventsAge)
	if until := now.Add(attributes); attributes > 0 && until.After(e.attributes) {
		e.attributes = until
	}
	if !lacks {
		return nil
	}
	return e.changedLocked()
}

// attributesWanted reports whether the history is to keep attributes of the next batch. keeps is set if
// it kept the attributes of the batch before. After a restart the first batches always have them: clients from
// before may come back.
func (e *Events) attributesWanted(keeps bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	switch {
	case !e.attributes.IsZero():
	case keeps:
		e.attributes = now.Add(AttributesAge)
	case e.head != "":
		e.attributes = now.Add(EventsAge)
	default:
		e.attributes = now // it is the first list
	}
	e.bare = !now.Before(e.attributes)
	return !e.bare
}

// Commit records a batch once apply has put it into the store, or skips it if it lacks events.
func (e *Events) Commit(c store.Changeset, apply func() error) error {
	if err := apply(); err != nil {
		return err
	}
	if c.Complete {
		e.Record(c.Transitions, c.RV)
		return nil
	}
	if c.Unordered {
		e.End()
	}
	e.Skip(c.RV)
	return nil
}

// Record adds the events of a batch, in the order of the stream, after which the collection is
// complete up to rv. A change that has no place after the events before it ends all watches.
func (e *Events) Record(batch []store.Transition, rv string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// An object that was fetched on its own may be newer than the stream: it waits for its place.
	all := slices.Concat(e.pending, batch)
	e.pending = nil
	sort.SliceStable(all, func(i, j int) bool { return object.NewerRV(all[j].RV, all[i].RV) })
	for _, t := range all {
		switch {
		case object.NewerRV(t.RV, rv):
			e.pending = append(e.pending, t)
		case !reached(t.RV, e.head):
			// It belongs to a time that watches have passed, so only a list has it for them.
			e.epoch++
			e.resetLocked(rv)
			return
		default:
			e.addLocked(t)
		}
	}
	e.trimLocked()
	e.advanceLocked(rv)
}

// Skip notes that the collection is complete up to rv, by changes that are not recorded: watches
// continue from the store's history. If rv is before a recorded event, the server's history is
// another one, and watches end.
func (e *Events) Skip(rv string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.head != "" && !reached(rv, e.head) {
		e.epoch++
	}
	e.resetLocked(rv)
}

// End ends all watches, with 410: the collection is not served any more, or has changed in a way that
// no event describes.
func (e *Events) End() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epoch++
	e.resetLocked("")
}

// Wake makes all watches look whether the resource is still described as they know it.
func (e *Events) Wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, cursors := range e.followers {
		for r := range cursors {
			r.look()
		}
	}
	e.notifyChangedLocked()
}

// resetLocked drops the events. Readers follow on if rv is the head.
func (e *Events) resetLocked(rv string) {
	e.events, e.newest, e.pending, e.bytes = nil, map[string]*event{}, nil, 0
	for _, cursors := range e.followers {
		for r := range cursors {
			if rv != e.head || r.epoch != e.epoch {
				e.unfollowLocked(r)
				r.look()
			}
		}
	}
	e.floor = rv
	e.advanceLocked(rv)
}

// advanceLocked moves the head, and wakes the requests that wait for that.
func (e *Events) advanceLocked(rv string) {
	e.head, e.skipping, e.bare = rv, false, false
	e.notifyChangedLocked()
}

func (e *Events) notifyChangedLocked() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// changedLocked returns a channel that is closed at the next change.
func (e *Events) changedLocked() <-chan struct{} {
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e.changed
}

func (e *Events) addLocked(t store.Transition) {
	x := &event{Transition: t, at: e.clock.Now(), bytes: eventOverhead}
	if t.Object != nil {
		x.bytes += int64(t.Object.Size())
	}
	if was := e.newest[t.Key]; t.Old != nil && was != nil && was.Object != nil && was.Type != store.Deleted && was.RV == t.Old.GetResourceVersion() {
		x.Old = was.Object // the same bytes, once
	} else if t.Old != nil {
		x.bytes += int64(t.Old.Size())
	}
	e.events = append(e.events, x)
	e.added++
	e.newest[t.Key] = x
	e.bytes += x.bytes
	e.notifyLocked(x)
}

// trimLocked drops the oldest events that are over a limit. Events of one resourceVersion go
// together.
func (e *Events) trimLocked() {
	oldest := e.clock.Now().Add(-EventsAge)
	n := 0
	for n < len(e.events) {
		x := e.events[n]
		same := n > 0 && x.RV == e.events[n-1].RV
		if !same && e.bytes <= e.maxBytes && x.at.After(oldest) {
			break
		}
		e.bytes -= x.bytes
		e.floor = x.RV
		if e.newest[x.Key] == x {
			delete(e.newest, x.Key)
		}
		n++
	}
	e.events = slices.Delete(e.events, 0, n)
}

// afterLocked returns the events after rv. known is false if there were some that are not there any
// more.
func (e *Events) afterLocked(rv string) (_ []*event, known bool) {
	if e.head == "" || object.NewerRV(e.floor, rv) {
		return nil, false
	}
	i := sort.Search(len(e.events), func(i int) bool { return object.NewerRV(e.events[i].RV, rv) })
	return slices.Clone(e.events[i:]), true
}

// undo returns the states at rv of the keys that were changed since then and up to the
// resourceVersion to, which the store has; nil if there was none.
func (e *Events) undo(ctx context.Context, rv, to string) (states map[string]*object.Object, ok bool) {
	for {
		e.mu.Lock()
		events, known := e.afterLocked(rv)
		head, changed := e.head, e.changedLocked()
		e.mu.Unlock()
		if !known {
			return nil, false
		}
		if object.NewerRV(to, head) { // the store is ahead for a moment
			select {
			case <-ctx.Done():
				return nil, false
			case <-changed:
			}
			continue
		}
		states = map[string]*object.Object{}
		for _, x := range events {
			if _, found := states[x.Key]; !found && !object.NewerRV(x.RV, to) {
				states[x.Key] = x.Old
			}
		}
		return states, true
	}
}

// attributes are the values that selectors match, before and after an event.
type attributes struct {
	spec        string // of the fields
	before, now selector.Attributes
	err         error
}

// attributes returns the values that selectors match. They are computed once, and again for watches that
// know other fields of the resource.
func (x *event) attributes(f selector.Fields, spec string) attributes {
	x.once.Do(func() { x.known = x.read(f, spec) })
	if x.known.spec != spec {
		return x.read(f, spec)
	}
	return x.known
}

func (x *event) read(f selector.Fields, spec string) attributes {
	a := attributes{spec: spec}
	if x.Object != nil {
		a.now, a.err = f.Of(x.Object)
	}
	if x.Old != nil && a.err == nil {
		a.before, a.err = f.Of(x.Old)
	}
	return a
}

// partial returns the metadata of the object.
func (x *event) partial() []byte {
	x.located.Do(func() { x.metadata = metadataOf(x.Object.JSON()) })
	return x.metadata
}
