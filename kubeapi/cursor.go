package kubeapi

import (
	"slices"
	"strings"

	"github.com/snapcache/snapcache/object"
)

// none means that no pending event concerns the cursor.
const none = -1

// takeBytes is how much a cursor takes at once: events on their way to a slow client stay in memory when
// [Events] does not have them any more.
const takeBytes = 128 << 10

// cursor is the place of a watch in [Events]. Once it follows them, it is woken only by events that
// concern it: of the others it sees nothing, so it does not matter how long they are kept.
type cursor struct {
	events *Events
	epoch  int

	// prefix begins the keys that concern the cursor: empty, a namespace's, or a whole key.
	prefix string
	wants  func(*event) bool // an event of a key with the prefix

	wake chan struct{} // has a value if a cursor that follows has to look again

	// Events.mu guards these. If the cursor follows, first is the number of its next event, counted from
	// the first one ever. The cursor has all that concerns it up to rv or, if first is none, up to the
	// head.
	follows bool
	rv      string
	first   int
}

// unseen has the events that a cursor has not seen yet.
type unseen struct {
	rv     string          // up to which the cursor has all that concerns it
	events []*event        // after rv; some may not concern the cursor
	head   string          // up to which resourceVersion they are complete
	more   <-chan struct{} // receives once the cursor has to look again

	// known is false if there were events that are not there any more; ended is set if rv has no
	// meaning any more.
	known, ended bool
}

// open begins to keep events, if that has not begun, until the cursor is closed. The cursor has no
// place before seek.
func (e *Events) open(prefix string, wants func(*event) bool) *cursor {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cursors++
	return &cursor{events: e, epoch: e.epoch, prefix: prefix, wants: wants, wake: make(chan struct{}, 1)}
}

func (c *cursor) close() {
	e := c.events
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unfollowLocked(c)
	e.cursors--
	e.until = e.clock.Now().Add(EventsAge)
}

// seek moves the cursor to rv.
func (c *cursor) seek(rv string) {
	c.events.mu.Lock()
	defer c.events.mu.Unlock()
	c.events.unfollowLocked(c)
	c.rv = rv
}

// take returns the unseen events of the cursor, which it has seen then if they are known. A cursor that
// is ahead of the events, or for which they are not known, does not follow: every change wakes it.
func (c *cursor) take() unseen {
	e := c.events
	e.mu.Lock()
	defer e.mu.Unlock()
	u := unseen{rv: c.rv, head: e.head, ended: c.epoch != e.epoch}
	oldest := e.added - len(e.events)
	switch {
	case !c.follows:
		if u.events, u.known = e.afterLocked(c.rv); u.known && !object.NewerRV(c.rv, e.head) {
			e.followLocked(c)
		}
	case c.first == none:
		u.rv, u.known = e.head, true
	case c.first >= oldest:
		u.events, u.known = slices.Clone(e.events[c.first-oldest:]), true
		c.first = none
	}
	if n := countOf(u.events); n < len(u.events) {
		e.followLocked(c)
		c.first = e.added - (len(u.events) - n)
		u.events, u.head = u.events[:n], u.events[n-1].RV
		c.rv = u.head
		c.look()
	}
	if u.more = c.wake; !c.follows || !u.known {
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

func (e *Events) followLocked(c *cursor) {
	c.follows, c.first = true, none
	if e.followers[c.prefix] == nil {
		e.followers[c.prefix] = map[*cursor]struct{}{}
	}
	e.followers[c.prefix][c] = struct{}{}
}

func (e *Events) unfollowLocked(c *cursor) {
	if !c.follows {
		return
	}
	if c.follows = false; c.first == none {
		c.rv = e.head
	}
	if delete(e.followers[c.prefix], c); len(e.followers[c.prefix]) == 0 {
		delete(e.followers, c.prefix)
	}
}

// notifyLocked wakes the cursors that the newest event, which is after the head, concerns.
func (e *Events) notifyLocked(x *event) {
	for _, prefix := range [...]string{"", x.Key[:strings.IndexByte(x.Key, '/')+1], x.Key} {
		for c := range e.followers[prefix] {
			if c.first == none && c.wants(x) {
				c.rv, c.first = e.head, e.added-1
				c.look()
			}
		}
	}
}

// look wakes the cursor.
func (c *cursor) look() {
	select {
	case c.wake <- struct{}{}:
	default: // it is awake
	}
}
