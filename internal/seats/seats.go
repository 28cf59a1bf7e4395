package seats

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrNone means that there was no seat in time, or no place to wait for one.
var ErrNone = errors.New("there is no free seat")

// Client is who seats are for. Any two strings identify it.
type Client struct{ User, Connection string }

// Seats are a number of seats. They are safe for concurrent use.
type Seats struct {
	total  int
	places int // for waiters; 0 for no limit

	mu      sync.Mutex
	taken   int
	waiting int
	came    int64 // how many have ever come
	users   map[string]*user
}

// New returns a limiter with total seats and a queue of at most places waiters, 0 for no limit. A user
// fills at most half of the places that other users leave.
func New(total, places int) *Seats {
	return &Seats{total: total, places: places, users: map[string]*user{}}
}

// user is one that has connections.
type user struct {
	name        string
	held        int
	waiting     int
	connections map[string]*connection
}

// connection is one that holds seats, or waits.
type connection struct {
	name  string
	of    *user
	held  int
	queue []*waiter
}

// waiter waits for a number of seats.
type waiter struct {
	width    int
	begun    bool
	number   int64
	seated   bool
	admitted chan struct{} // closed when it is seated
}

// Seat is a client's share of the seats. Only one goroutine at a time may use it.
type Seat struct {
	of    *Seats
	owner *connection
	width int
}

// Take blocks until min(width, total) seats are free, giveUp receives or ctx ends. It fails with [ErrNone]
// or the context's error. Clients whose answer has begun, so that a part of it was sent before, go before
// others. Leave has to follow a success.
//
// A value of giveUp is received only if Take fails: the caller may wait for the same timer later.
func (s *Seats) Take(ctx context.Context, c Client, width int, begun bool, giveUp <-chan time.Time) (*Seat, error) {
	x, w := s.join(c, min(width, s.total), begun)
	if w == nil {
		return nil, ErrNone
	}
	seat := &Seat{s, x, w.width}
	select {
	case <-w.admitted: // first, as a select with several ready cases takes any of them
		return seat, nil
	default:
	}
	var err error
	select {
	case <-w.admitted:
		return seat, nil
	case <-giveUp:
		err = ErrNone
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !s.abandon(x, w) { // it was seated meanwhile
		seat.Leave()
	}
	return nil, err
}

// join seats a client or lets it wait; nil if too many wait.
func (s *Seats) join(c Client, width int, begun bool) (*connection, *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.users[c.User]
	if u == nil {
		u = &user{name: c.User, connections: map[string]*connection{}}
		s.users[c.User] = u
	}
	x := u.connections[c.Connection]
	if x == nil {
		x = &connection{name: c.Connection, of: u}
		u.connections[c.Connection] = x
	}
	s.came++
	w := &waiter{width: width, begun: begun, number: s.came, admitted: make(chan struct{})}
	at := len(x.queue)
	if begun {
		at = 0
		for at < len(x.queue) && x.queue[at].begun {
			at++
		}
	}
	x.queue = slices.Insert(x.queue, at, w)
	s.waiting++
	u.waiting++
	s.admitLocked()
	if !w.seated && s.places > 0 && s.waiting+u.waiting > s.places+1 {
		s.removeLocked(x, w)
		return nil, nil
	}
	return x, w
}

// abandon ends the waiting; it returns false for one that was seated.
func (s *Seats) abandon(x *connection, w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.seated {
		return false
	}
	s.removeLocked(x, w)
	s.admitLocked() // the ones behind it
	return true
}

func (s *Seats) removeLocked(x *connection, w *waiter) {
	x.queue = slices.DeleteFunc(x.queue, func(other *waiter) bool { return other == w })
	x.of.waiting--
	s.waiting--
	s.forgetLocked(x)
}

// forgetLocked removes a connection that neither holds nor waits.
func (s *Seats) forgetLocked(x *connection) {
	if x.held > 0 || len(x.queue) > 0 {
		return
	}
	if delete(x.of.connections, x.name); len(x.of.connections) == 0 {
		delete(s.users, x.of.name)
	}
}

// admitLocked seats waiters, as far as there is room.
func (s *Seats) admitLocked() {
	for x := s.nextLocked(); x != nil; x = s.nextLocked() {
		s.seatLocked(x)
	}
}

// seatLocked seats the first waiter of a connection.
func (s *Seats) seatLocked(x *connection) {
	w := x.queue[0]
	x.queue = slices.Delete(x.queue, 0, 1)
	x.of.waiting--
	s.waiting--
	s.holdLocked(x, w.width)
	w.seated = true
	close(w.admitted)
}

func (s *Seats) holdLocked(x *connection, width int) {
	x.held += width
	x.of.held += width
	s.taken += width
}

// nextLocked returns the connection whose first waiter is next; nil if there is none, or not room enough.
func (s *Seats) nextLocked() *connection {
	free := s.total - s.taken
	var next *connection
	for _, u := range s.users {
		x := u.next(free - u.held)
		if x == nil || u.held > 0 && x.queue[0].width > free-u.held {
			continue // it has enough
		}
		if next == nil || u.held < next.of.held || u.held == next.of.held && x.queue[0].before(next.queue[0]) {
			next = x
		}
	}
	if next == nil || next.queue[0].width > free {
		return nil
	}
	return next
}

// next returns the user's connection whose first waiter is next, given the seats that the user may still
// take; nil if there is none.
func (u *user) next(room int) *connection {
	if u.waiting == 0 {
		return nil
	}
	var next *connection
	for _, x := range u.connections {
		switch {
		case len(x.queue) == 0, x.held > 0 && x.queue[0].width > room-x.held: // it has enough
		case next == nil, x.precedes(next):
			next = x
		}
	}
	return next
}

// precedes reports whether x is before another connection of its user.
func (x *connection) precedes(other *connection) bool {
	a, b := x.queue[0], other.queue[0]
	if a.begun == b.begun && x.held != other.held {
		return x.held < other.held
	}
	return a.before(b)
}

// before reports whether w is before a waiter of another client that holds as many seats.
func (w *waiter) before(other *waiter) bool {
	if w.begun != other.begun {
		return w.begun
	}
	return w.number < other.number
}

// Narrow frees all seats but width.
func (t *Seat) Narrow(width int) {
	if width >= t.width {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.holdLocked(t.owner, width-t.width)
	t.width = width
	t.of.forgetLocked(t.owner)
	t.of.admitLocked()
}

// Leave frees the seats. It may be called again.
func (t *Seat) Leave() { t.Narrow(0) }

// Taken returns how many seats are taken, and how many clients wait for one.
func (s *Seats) Taken() (seats, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken, s.waiting
}
