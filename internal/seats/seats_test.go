package seats

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// room is seats whose clients are noted in the order in which they are seated.
type room struct {
	t *testing.T
	*Seats

	mu     sync.Mutex
	seated []string
	held   map[string][]*Seat
}

func newRoom(t *testing.T, total, places int) *room {
	return &room{t: t, Seats: New(total, places), held: map[string][]*Seat{}}
}

// ask lets a client, named as user/connection, ask for seats beside others.
func (r *room) ask(user, connection string, width int, begun bool) {
	go func() {
		seat, err := r.Take(r.t.Context(), Client{user, connection}, width, begun, nil)
		if err != nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		name := user + "/" + connection
		r.seated = append(r.seated, name)
		r.held[name] = append(r.held[name], seat)
	}()
	synctest.Wait()
}

// leave ends one seat of a client, and returns which are seated by that.
func (r *room) leave(name string) []string {
	r.mu.Lock()
	seat := r.held[name][0]
	r.held[name] = r.held[name][1:]
	r.seated = nil
	r.mu.Unlock()
	seat.Leave()
	seat.Leave() // again
	synctest.Wait()
	return r.seated
}

// TestShares: a user takes half of the seats at most, and a connection a third.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, 60, 0)
		for range 100 {
			r.ask("one", "a", 1, false)
		}
		require.Len(t, r.held["one/a"], 20)
		for range 100 {
			r.ask("one", "b", 1, false)
		}
		require.Len(t, r.held["one/b"], 7, "of the same user")
		for range 100 {
			r.ask("two", "a", 1, false)
		}
		require.Len(t, r.held["two/a"], 11)
		taken, waiting := r.Taken()
		require.Equal(t, 38, taken)
		require.Equal(t, 262, waiting)
		r.ask("three", "a", 1, false)
		require.Len(t, r.held["three/a"], 1, "a user without seats waited behind the others")
		r.empty()

		r = newRoom(t, 60, 0)
		for i := range 100 {
			r.ask("one", fmt.Sprint(i), 1, false)
		}
		require.Len(t, r.seated, 30, "half for one user, however many connections it has")
		r.empty()
	})
}

// TestOrder: the user that holds the fewest is next, then its connection that holds the fewest, then what
// has begun and what came first.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, 20, 0)
		r.ask("full", "a", 20, false)
		r.ask("one", "a", 1, false)
		r.ask("one", "a", 1, false)
		r.ask("one", "a", 1, true)
		r.ask("one", "b", 1, false)
		r.ask("two", "a", 1, false)
		r.ask("two", "c", 1, true)
		r.ask("two", "b", 1, false)
		r.ask("two", "c", 1, true)
		full := r.held["full/a"][0]
		var order []string
		r.Seats.mu.Lock()
		r.holdLocked(full.owner, -full.width)
		for x := r.nextLocked(); x != nil; x = r.nextLocked() {
			order = append(order, fmt.Sprint(x.of.name, "/", x.name, " ", x.queue[0].number))
			r.seatLocked(x)
		}
		r.holdLocked(full.owner, full.width)
		r.Seats.mu.Unlock()
		require.Equal(t, []string{"one/a 4", "two/c 7", "two/c 9", "one/b 5", "one/a 2", "two/a 6", "one/a 3", "two/b 8"}, order)
		synctest.Wait()
		r.empty()
	})
}

// empty ends all that is seated.
func (r *room) empty() {
	for taken, _ := r.Taken(); taken > 0; taken, _ = r.Taken() {
		for name, all := range r.held {
			if len(all) > 0 {
				r.leave(name)
			}
		}
	}
	require.Empty(r.t, r.users)
}

// TestWideIsNotStarved: what is wide gets its seats, though what is narrow comes all the time, and
// gives back what it does not need.
func TestWideIsNotStarved(t *testing.T) {
	for _, user := range []string{"same", "other"} {
		t.Run(user, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoom(t, 8, 0)
				for i := range 4 {
					r.ask("same", fmt.Sprint(i), 1, false)
				}
				r.ask(user, "wide", 6, false)
				for i := range 10 {
					r.ask("same", fmt.Sprint("new ", i), 1, false)
				}
				seated := len(r.seated)
				require.LessOrEqual(t, seated, 4)
				for i := range 3 {
					require.NotContains(t, fmt.Sprint(r.leave(fmt.Sprint("same/", i))), "new", "all are behind what is wide")
				}
				if r.held["same/3"] != nil {
					r.leave("same/3")
				}
				wide := r.held[user+"/wide"]
				require.Len(t, wide, 1)
				_, before := r.Taken()
				wide[0].Narrow(1)
				synctest.Wait()
				_, after := r.Taken()
				require.Less(t, after, before, "the seats that it does not need")
				wide[0].Narrow(3)
				require.Equal(t, 1, wide[0].width)
				r.empty()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, 8, 0)
		r.ask("one", "a", 100, false)
		require.Len(t, r.seated, 1, "a request for more seats than there are gets all")
		r.empty()

		r = newRoom(t, 20, 0)
		for range 3 {
			r.ask("much", "a", 1, false)
		}
		r.ask("little", "a", 2, false)
		r.ask("little", "b", 14, false)
		require.NotContains(t, r.seated, "little/b", "a connection exceeds its share")
		r.ask("much", "b", 1, false)
		require.Contains(t, r.seated, "much/b", "a narrow request of another user is seated")
		r.empty()
	})
}

// TestWaitersAreLimited: those that wait are limited, in all and for each user, and may leave at any time.
func TestWaitersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2, 10)
		all := Client{"holds", "a"}
		seat, err := s.Take(t.Context(), all, 2, false, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 100)
		ask := func(user string) {
			go func() {
				_, err := s.Take(ctx, Client{user, "a"}, 1, false, nil)
				ended <- err
			}()
			synctest.Wait()
		}
		waiting := func() int {
			_, n := s.Taken()
			return n
		}
		for range 20 {
			ask("many")
		}
		require.Equal(t, 5, waiting())
		require.Len(t, ended, 15)
		require.ErrorIs(t, <-ended, ErrNone)
		ask("other")
		require.Equal(t, 6, waiting())
		began := time.Now()
		_, err = s.Take(t.Context(), Client{"other", "b"}, 1, false, time.After(3*time.Second))
		require.ErrorIs(t, err, ErrNone)
		require.Equal(t, 3*time.Second, time.Since(began))
		cancel()
		synctest.Wait()
		require.Zero(t, waiting())
		require.Len(t, s.users, 1)
		seat.Leave()
		require.Empty(t, s.users)
	})
}

// TestWaiterBehindCanceledWide: what waits behind one that gives up is seated.
func TestWaiterBehindCanceledWide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, 4, 0)
		r.ask("one", "a", 2, false)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := r.Take(ctx, Client{"two", "a"}, 4, false, nil)
			gone <- err
		}()
		synctest.Wait()
		r.ask("three", "a", 1, false)
		require.Len(t, r.seated, 1)
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		synctest.Wait()
		require.Equal(t, []string{"one/a", "three/a"}, r.seated)
		r.empty()
	})
}

// TestTakeReceivesGiveUpOnlyIfItFails: a caller that got its seat can still wait for the end of its time.
func TestTakeReceivesGiveUpOnlyIfItFails(t *testing.T) {
	over := make(chan time.Time, 1)
	over <- time.Time{}
	for range 50 { // a select takes any case that is ready
		seat, err := New(1, 0).Take(t.Context(), Client{}, 1, false, over)
		require.NoError(t, err)
		require.Len(t, over, 1)
		seat.Leave()
	}

	s, ends, got := New(1, 0), make(chan time.Time), make(chan error)
	seat, err := s.Take(t.Context(), Client{"one", "a"}, 1, false, nil)
	require.NoError(t, err)
	go func() {
		_, err := s.Take(t.Context(), Client{"two", "a"}, 1, false, ends)
		got <- err
	}()
	require.Eventually(t, func() bool { _, waiting := s.Taken(); return waiting == 1 }, time.Minute, time.Millisecond)
	s.mu.Lock() // the waiter's time is over, and before it can say so it is seated
	ends <- time.Time{}
	s.holdLocked(seat.owner, -1)
	s.forgetLocked(seat.owner)
	s.admitLocked()
	require.Equal(t, 1, s.taken)
	s.mu.Unlock()
	require.ErrorIs(t, <-got, ErrNone)
	require.Zero(t, s.taken)
	require.Empty(t, s.users)
}

// TestConcurrent checks, with real concurrency, that there are never more seats than there should be, and
// that none is lost.
func TestConcurrent(t *testing.T) {
	s := New(16, 40)
	var clients sync.WaitGroup
	for i := range 50 {
		clients.Go(func() {
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
				seat, err := s.Take(ctx, Client{fmt.Sprint(i % 7), fmt.Sprint(i)}, 1+rand.N(5), i%2 == 0, nil)
				if err == nil {
					if taken, _ := s.Taken(); taken > 16 {
						t.Errorf("%d seats are taken", taken)
					}
					time.Sleep(rand.N(100 * time.Microsecond))
					seat.Narrow(1)
					seat.Leave()
				}
				cancel()
			}
		})
	}
	clients.Wait()
	require.Zero(t, s.taken)
	require.Zero(t, s.waiting)
	require.Empty(t, s.users)
}
