package kubeapi

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/store"
)

// entry is an event that was recorded, or a gap, which has no key.
type entry struct {
	key    string
	rv     int
	before int // the head before it
}

// history is what a collection's events get, and what became of it.
type history struct {
	*Events
	clock   *clocktesting.FakePassiveClock
	log     []entry // since the beginning
	pending []store.Transition
	head    int // 0 for none
	ended   int // how often all cursors were ended
}

// epochEnds notes the end of all cursors.
func (h *history) epochEnds(head int) {
	h.ended++
	h.log, h.pending, h.head = nil, nil, head
}

func (h *history) gap(head int) {
	if head != h.head {
		h.log = append(h.log, entry{rv: head, before: h.head})
	}
	h.head, h.pending = head, nil
}

// record records changes after the head, or at it, as of a lease that ends. The last ones may have to
// wait for their place.
func (h *history) record(t *rapid.T) {
	rv, head := h.head, h.head
	var batch []store.Transition
	for range rapid.IntRange(0, 4).Draw(t, "events") {
		rv += rapid.IntRange(0, 2).Draw(t, "step")
		batch = append(batch, store.Transition{
			Type: store.Modified, RV: strconv.Itoa(rv), Key: rapid.SampledFrom([]string{"a/x", "a/y", "b/x", "a-b/x", "b"}).Draw(t, "key"),
		})
	}
	head = max(head, rv+rapid.IntRange(-2, 2).Draw(t, "head"))
	all := slices.Concat(h.pending, batch)
	h.pending = nil
	slices.SortStableFunc(all, func(a, b store.Transition) int { return version(a.RV) - version(b.RV) })
	for _, x := range all {
		if version(x.RV) > head {
			h.pending = append(h.pending, x)
		} else {
			h.log = append(h.log, entry{x.Key, version(x.RV), h.head})
		}
	}
	h.head = head
	h.Record(batch, strconv.Itoa(head))
}

func version(rv string) int {
	n, _ := strconv.Atoi(rv)
	return n
}

// follower is a cursor, and what it has to get.
type follower struct {
	*cursor
	h     *history
	odd   bool // only events of odd resourceVersions concern it
	since int  // history.ended at its beginning
	more  <-chan struct{}

	followed bool // after the last look
	at       int  // up to where in the log it has all then
}

func (h *history) open(prefix string, odd bool, rv int) *follower {
	f := &follower{h: h, odd: odd, since: h.ended}
	f.cursor = h.Events.open(prefix, func(x *event) bool { return !odd || version(x.RV)%2 == 1 })
	f.seek(strconv.Itoa(rv))
	return f
}

func (f *follower) concerned(e entry) bool {
	under := e.key == f.prefix || f.prefix == "" || strings.HasSuffix(f.prefix, "/") && strings.HasPrefix(e.key, f.prefix)
	return e.key != "" && under && (!f.odd || e.rv%2 == 1)
}

// first returns the first entry that a cursor which follows has to learn of.
func (f *follower) first() (entry, bool) {
	for _, e := range f.h.log[f.at:] {
		if e.key == "" || f.concerned(e) {
			return e, true
		}
	}
	return entry{}, false
}

// look takes what there is, and checks that it is what a cursor would have that is woken by every
// change and looks at once.
func (f *follower) look(t *rapid.T) (ended bool) {
	h, was := f.h, version(f.rv)
	u := f.take()
	f.more = u.more
	require.Equal(t, f.since != h.ended, u.ended)
	if u.ended {
		return true
	}
	require.Equal(t, h.head, version(u.head))
	from, lost := 0, false
	if f.followed {
		from, was = f.at, 0
		if lost = f.lost(); lost {
			first, _ := f.first()
			was = first.before
			require.Equal(t, was, version(u.rv), "the store's history has the rest")
		}
	}
	if !u.known {
		require.True(t, lost || !f.followed && was < version(h.floor), "all is there")
		h.Events.Record(nil, u.head)
		require.True(t, f.woken(), "the store may have more by now")
		f.seek(u.head) // the store is there
		f.followed = false
		return f.look(t)
	}
	require.True(t, !lost || was == h.head, "something is missing")
	var want, got []entry
	for _, e := range h.log[from:] {
		if e.rv > was && f.concerned(e) {
			want = append(want, entry{key: e.key, rv: e.rv})
		}
	}
	for _, x := range u.events {
		if e := (entry{key: x.Key, rv: version(x.RV)}); f.concerned(e) {
			got = append(got, e)
		}
	}
	require.Equal(t, want, got)
	f.followed, f.at = f.follows, len(h.log)
	require.Equal(t, version(u.rv) <= h.head, f.followed, "a cursor that is ahead waits for every change")
	return false
}

// lost reports whether events that concern the cursor are not there any more.
func (f *follower) lost() bool {
	kept := len(f.h.log) - len(f.h.events)
	for i, e := range f.h.log[f.at:] {
		if e.key == "" || f.concerned(e) && f.at+i < kept {
			return true
		}
	}
	return false
}

// woken reports whether the cursor is woken.
func (f *follower) woken() bool {
	select {
	case <-f.more:
		return true
	default:
		return false
	}
}

// TestCursors checks that cursors get what they would get if they were woken by every change, whatever
// is trimmed, skipped or ended meanwhile, and that only what concerns them wakes them.
func TestCursors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), head: 1000}
		h.Events = NewEvents("1000", h.clock)
		h.maxBytes = int64(rapid.SampledFrom([]int{1, 3, 10, 1000}).Draw(t, "kept")) * eventOverhead
		var all []*follower
		followers := func(t *rapid.T) *follower {
			if len(all) == 0 {
				t.Skip("there is none")
			}
			return rapid.SampledFrom(all).Draw(t, "follower")
		}
		remove := func(f *follower) {
			f.close()
			all = slices.DeleteFunc(all, func(x *follower) bool { return x == f })
		}
		look := func(f *follower) {
			if f.look(t) {
				remove(f)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				cursors := 0
				for _, of := range h.followers {
					cursors += len(of)
				}
				require.LessOrEqual(t, cursors, len(all))
			},
			"record": h.record,
			"skip": func(t *rapid.T) {
				h.gap(h.head + rapid.IntRange(0, 2).Draw(t, "step"))
				h.Skip(strconv.Itoa(h.head))
			},
			"back": func(*rapid.T) {
				h.epochEnds(h.head - 1)
				h.Skip(strconv.Itoa(h.head))
			},
			"old": func(*rapid.T) {
				h.epochEnds(h.head)
				h.Record([]store.Transition{{Type: store.Modified, Key: "a/x", RV: strconv.Itoa(h.head - 1)}}, strconv.Itoa(h.head))
			},
			"end": func(*rapid.T) {
				h.Events.End()
				h.epochEnds(h.head)
				h.Skip(strconv.Itoa(h.head))
			},
			"age": func(*rapid.T) { h.clock.SetTime(h.clock.Now().Add(EventsAge / 2)) },
			"open": func(t *rapid.T) {
				prefix := rapid.SampledFrom([]string{"", "a/", "b/", "a/x", "b"}).Draw(t, "prefix")
				f := h.open(prefix, rapid.Bool().Draw(t, "odd"), h.head+rapid.IntRange(-6, 3).Draw(t, "rv"))
				all = append(all, f)
				look(f)
			},
			"wake": func(t *rapid.T) {
				f := followers(t)
				needed := f.since != h.ended
				if !needed {
					_, needed = f.first()
				}
				woken := f.woken()
				if needed || f.followed {
					require.Equal(t, needed, woken)
				}
				if woken {
					look(f)
				}
			},
			"bookmark": func(t *rapid.T) {
				f := followers(t)
				f.woken()
				look(f)
			},
			"close": func(t *rapid.T) { remove(followers(t)) },
		})
		for _, f := range all {
			f.close()
		}
		require.Empty(t, h.followers)
		require.Zero(t, h.cursors)
	})
}

// A collection has clients while one follows it, and as long after that as events are kept for it.
func TestHasClients(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	e := NewEvents("10", clock)
	require.False(t, e.HasClients())
	c := e.open("", func(*event) bool { return true })
	require.True(t, e.HasClients())
	c.close()
	require.True(t, e.HasClients(), "it may come back")
	clock.SetTime(clock.Now().Add(EventsAge))
	require.False(t, e.HasClients())
	e.expect(0)
	require.True(t, e.HasClients(), "a client has listed")
}
