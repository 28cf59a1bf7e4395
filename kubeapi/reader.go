package kubeapi

import (
	"slices"
	"strings"

	"github.com/snapcache/snapcache/object"
)

// none means that no pending event concerns the reader.
const none = -1

// takeBytes is how much a reader takes at once: events on their way to a slow client stay in memory when
// [Events] does not have them any more.
const takeBytes = 128 << 10

// reader is the place of a watch in [Events]. Once it follows them, it is woken only by events that
// concern it: of the others it sees nothing, so it does not matter how long they are kept.
type reader struct {
	events *Events
	epoch  int

	// prefix begins the keys that concern the reader: empty, a namespace's, or a whole key.
	prefix string
	wants  func(*event) bool // an event of a key with the prefix

	wake chan struct{} // has a value if a reader that follows has to look again

	// Events.mu guards these. If the reader follows, first is the number of its next event, counted from
	// the first one ever. The reader has all that concerns it up to rv or, if first is none, up to the
	// head.
	follows bool
	rv      string
	first   int
}

// unseen has the events that a reader has not seen yet.
type unseen struct {
	rv     string          // up to which the reader has all that concerns it
	events []*event        // after rv; some may not concern the reader
	head   string          // up to which resourceVersion they are complete
	more   <-chan struct{} // receives once the reader has to look again

	// known is false if there were events that are not there any more; ended is set if rv has no
	// meaning any more.
	known, ended bool
}

// open begins to keep events, if that has not begun, until the reader is closed. The reader has no
// place before seek.
func (e *Events) open(prefix string, wants func(*event) bool) *reader {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readers++
	return &reader{events: e, epoch: e.epoch, prefix: prefix, wants: wants, wake: make(chan struct{}, 1)}
}

func (r *reader) close() {
	e := r.events
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unfollowLocked(r)
	e.readers--
	e.until = e.clock.Now().Add(EventsAge)
}

// seek moves the reader to rv.
func (r *reader) seek(rv string) {
	r.events.mu.Lock()
	defer r.events.mu.Unlock()
	r.events.unfollowLocked(r)
	r.rv = rv
}

// take returns the unseen events of the reader, which it has seen then if they are known. A reader that
// is ahead of the events, or for which they are not known, does not follow: every change wakes it.
func (r *reader) take() unseen {
	e := r.events
	e.mu.Lock()
	defer e.mu.Unlock()
	u := unseen{rv: r.rv, head: e.head, ended: r.epoch != e.epoch}
	oldest := e.added - len(e.events)
	switch {
	case !r.follows:
		if u.events, u.known = e.afterLocked(r.rv); u.known && !object.NewerRV(r.rv, e.head) {
			e.followLocked(r)
		}
	case r.first == none:
		u.rv, u.known = e.head, true
	case r.first >= oldest:
		u.events, u.known = slices.Clone(e.events[r.first-oldest:]), true
		r.first = none
	}
	if n := countOf(u.events); n < len(u.events) {
		e.followLocked(r)
		r.first = e.added - (len(u.events) - n)
		u.events, u.head = u.events[:n], u.events[n-1].RV
		r.rv = u.head
		r.look()
	}
	if u.more = r.wake; !r.follows || !u.known {
		u.more = e.changedLocked()
	}
	return u
}

// countOf returns how many events are taken at once. Events of one resourceVersion go together.
func countOf(events []*event) (n int) {
	bytes := int64(0)
	for n < len(events) && (bytes < takeBytes || events[n].RV == events[n-1].RV) {
		bytes += events[n].bytes
		n++
	}
	return n
}

func (e *Events) followLocked(r *reader) {
	r.follows, r.first = true, none
	if e.followers[r.prefix] == nil {
		e.followers[r.prefix] = map[*reader]struct{}{}
	}
	e.followers[r.prefix][r] = struct{}{}
}

func (e *Events) unfollowLocked(r *reader) {
	if !r.follows {
		return
	}
	if r.follows = false; r.first == none {
		r.rv = e.head
	}
	if delete(e.followers[r.prefix], r); len(e.followers[r.prefix]) == 0 {
		delete(e.followers, r.prefix)
	}
}

// notifyLocked wakes the readers that the newest event, which is after the head, concerns.
func (e *Events) notifyLocked(x *event) {
	for _, prefix := range [...]string{"", x.Key[:strings.IndexByte(x.Key, '/')+1], x.Key} {
		for r := range e.followers[prefix] {
			if r.first == none && r.wants(x) {
				r.rv, r.first = e.head, e.added-1
				r.look()
			}
		}
	}
}

// look wakes the reader.
func (r *reader) look() {
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}
