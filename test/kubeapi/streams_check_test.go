package kubeapi

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

// event is what a watch of a selection consists of. The object of a deletion is the one before it.
type event struct {
	typ string
	version
}

// history is the truth of a selection.
type history struct {
	events  []event            // in ascending order
	byKey   map[string][]event // the same
	changed map[moment]bool    // all changes of the resource, selected or not
	deleted map[string]bool    // UIDs of all objects that were deleted
}

// moment is that of a change.
type moment struct {
	key string
	rv  uint64
}

func newHistory(changes []change, matches func(version) bool) *history {
	h := &history{byKey: map[string][]event{}, changed: map[moment]bool{}, deleted: map[string]bool{}}
	current := map[string]version{}
	for _, c := range changes {
		h.changed[moment{c.key, c.rv}] = true
		before, existed := current[c.key]
		e := event{version: c.version}
		switch old, now := existed && matches(before), !c.deleted && matches(c.version); {
		case old && now:
			e.typ = "MODIFIED"
		case now:
			e.typ = "ADDED"
		case old:
			e = event{typ: "DELETED", version: before}
			e.rv = c.rv
		}
		if e.typ != "" {
			h.events = append(h.events, e)
			h.byKey[c.key] = append(h.byKey[c.key], e)
		}
		current[c.key] = c.version
		if c.deleted {
			delete(current, c.key)
			h.deleted[c.uid] = true
		}
	}
	return h
}

// between returns the events after one resourceVersion and up to another.
func (h *history) between(from, to uint64) []event {
	after := func(events []event, rv uint64) int {
		return sort.Search(len(events), func(i int) bool { return events[i].rv > rv })
	}
	if to < from {
		return nil
	}
	return h.events[after(h.events, from):after(h.events, to)]
}

// newest returns the resourceVersion of the last event, 0 if there is none.
func (h *history) newest() uint64 {
	if len(h.events) == 0 {
		return 0
	}
	return h.events[len(h.events)-1].rv
}

// objectAt returns the selected object at a key in the state at rv.
func (h *history) objectAt(key string, rv uint64) (v version, found bool) {
	events := h.byKey[key]
	i := sort.Search(len(events), func(i int) bool { return events[i].rv > rv })
	if i == 0 || events[i-1].typ == "DELETED" {
		return version{}, false
	}
	return events[i-1].version, true
}

// stateAt returns the selected objects in the state at rv.
func (h *history) stateAt(rv uint64) map[string]version {
	state := map[string]version{}
	for key := range h.byKey {
		if v, found := h.objectAt(key, rv); found {
			state[key] = v
		}
	}
	return state
}

// holder is a client as its streams make it: with what it has, and up to where.
type holder struct {
	rv  uint64
	has map[string]version
}

// checker follows the streams of one client.
type checker struct {
	*history
	exact bool // the client did not ask for bookmarks, so that it gets every event or 410

	now    holder
	saved  holder          // at the last bookmark
	unsure map[string]bool // keys of which the next event's type may be wrong, see cutInReplay

	problems []string
	moved    int // deletions at a resourceVersion that is not the server's
}

// checkStreams returns what is wrong with the streams of a client, of which the last one ends in the
// newest state, and how many deletions had a resourceVersion that is not the server's.
func checkStreams(h *history, exact bool, streams []stream) (problems []string, moved int) {
	x := followStreams(h, exact, streams)
	x.requireState("at the end", h.newest())
	return x.problems, x.moved
}

// followStreams is checkStreams for streams of which the last one may end in any state.
func followStreams(h *history, exact bool, streams []stream) *checker {
	x := &checker{history: h, exact: exact, unsure: map[string]bool{}}
	for i, s := range streams {
		before := len(x.problems)
		x.stream(s)
		for j := before; j < len(x.problems); j++ {
			x.problems[j] = fmt.Sprintf("stream %d of %d from %d: %s", i+1, len(streams), s.from, x.problems[j])
		}
	}
	return x
}

// story returns the newest events of a key up to the client's resourceVersion.
func (x *checker) story(key string) string {
	var b strings.Builder
	events := x.byKey[key]
	n := sort.Search(len(events), func(i int) bool { return events[i].rv > x.now.rv })
	for _, e := range events[max(0, n-5):n] {
		fmt.Fprintf(&b, " %s %s at %d,", e.typ, e.uid, e.rv)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func (x *checker) problem(format string, args ...any) {
	x.problems = append(x.problems, fmt.Sprintf(format, args...))
}

func (x *checker) stream(s stream) {
	frames := s.frames
	switch {
	case s.begins && !s.whole():
		return // the client begins again
	case s.begins:
		n := slices.IndexFunc(frames, func(f frame) bool { return f.typ == bookmark })
		x.begin(s.from, frames[:n], frames[n].rv)
		frames = frames[n+1:]
	case s.from == x.saved.rv:
		x.now = holder{x.saved.rv, maps.Clone(x.saved.has)}
		clear(x.unsure)
	case s.from != x.now.rv:
		x.problem("the client is at %d and has a bookmark at %d", x.now.rv, x.saved.rv)
		return
	}
	since, unmarked := x.now.rv, []frame(nil)
	for _, f := range frames {
		if f.typ != bookmark {
			x.event(f)
			unmarked = append(unmarked, f)
			continue
		}
		if x.exact {
			x.problem("a bookmark at %d, for which the client did not ask", f.rv)
		}
		x.bookmark(f.rv)
		since, unmarked = f.rv, nil
	}
	if d := differ(x.between(since, x.now.rv), unmarked); d != "" && x.exact {
		x.problem("the events after %d are not the server's: %s", since, d)
	} else if d != "" {
		x.cutInReplay(unmarked)
	}
}

// begin replaces the state by a list at rv, which is at least as new as asked for.
func (x *checker) begin(asked uint64, objects []frame, rv uint64) {
	if rv < asked {
		x.problem("a list at %d goes back from %d", rv, asked)
	}
	x.now = holder{rv, map[string]version{}}
	for _, f := range objects {
		if _, twice := x.now.has[f.key]; twice || f.typ != "ADDED" {
			x.problem("a list at %d has %s of %s at %d", rv, f.typ, f.key, f.rv)
		}
		x.now.has[f.key] = f.version
	}
	x.bookmark(rv)
}

// bookmark requires that the client has the state at rv.
func (x *checker) bookmark(rv uint64) {
	if rv < x.now.rv {
		x.problem("a bookmark at %d goes back from %d", rv, x.now.rv)
	}
	x.now.rv = rv
	x.requireState("at a bookmark or list", rv)
	x.saved = holder{rv, maps.Clone(x.now.has)}
	clear(x.unsure)
}

func (x *checker) requireState(when string, rv uint64) {
	want := x.stateAt(rv)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if has, found := x.now.has[key]; !found {
			x.problem("%s, %d: %s at %d is missing", when, rv, key, want[key].rv)
		} else if has.rv != want[key].rv || !has.sameObject(want[key]) {
			x.problem("%s, %d: the client has %v, and the server %v", when, rv, has, want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(x.now.has)) {
		if _, found := want[key]; !found {
			x.problem("%s, %d: the client has %s at %d, which the server has not", when, rv, key, x.now.has[key].rv)
		}
	}
}

// event applies an event of either tier. The exact tier is checked further.
func (x *checker) event(f frame) {
	if f.rv <= x.now.rv {
		x.problem("%s of %s at %d comes after %d", f.typ, f.key, f.rv, x.now.rv)
	}
	x.now.rv = f.rv
	before := len(x.problems)
	defer func() {
		if len(x.problems) > before {
			x.problem("the server's events of %s:%s", f.key, x.story(f.key))
		}
	}()
	has, held := x.now.has[f.key]
	want, selected := x.objectAt(f.key, f.rv)
	unsure := x.unsure[f.key]
	delete(x.unsure, f.key)
	switch {
	case f.typ == "DELETED":
		x.deletion(f, unsure || held && has.uid == f.uid, selected)
		delete(x.now.has, f.key)
		return
	case !selected || want.rv != f.rv || !want.sameObject(f.version):
		x.problem("%s of %v, when the server has %v", f.typ, f.version, want)
	case unsure:
	case f.typ == "ADDED" && held && has.uid == f.uid: // with another UID it was created again
		x.problem("ADDED of %s at %d, which the client has at %d", f.key, f.rv, has.rv)
	case f.typ == "MODIFIED" && (!held || has.uid != f.uid):
		x.problem("MODIFIED of %s at %d, which the client does not have", f.key, f.rv)
	case f.typ != "ADDED" && f.typ != "MODIFIED":
		x.problem("%s of %s at %d", f.typ, f.key, f.rv)
	}
	x.now.has[f.key] = f.version
}

// deletion checks an event DELETED. In the coalesced tier its resourceVersion is a free one if a list
// of the agent found the deletion, or if the object was created again.
func (x *checker) deletion(f frame, held, selected bool) {
	switch {
	case !held:
		x.problem("DELETED of %s with the UID %s at %d, when the client has %v", f.key, f.uid, f.rv, x.now.has[f.key])
	case !selected && x.changed[moment{f.key, f.rv}]:
	case !x.exact && x.deleted[f.uid]:
		x.moved++
	default:
		x.problem("DELETED of %v, which the server did not delete then", f.version)
	}
}

// cutInReplay is the one exception of the coalesced tier. Before its bookmark a replay is no state of a
// resourceVersion: a client that is cut there, and continues from its last event, may get wrong types
// for the objects of which it has not got the newest state. If an object has left the selection and come
// back, the exit has its own place, and the newest state comes later. The client must not miss a deletion.
// events are those since the last bookmark.
func (x *checker) cutInReplay(events []frame) {
	last := map[string]string{} // types of the newest events
	for _, f := range events {
		last[f.key] = f.typ
	}
	for key := range x.byKey {
		typ, got := last[key]
		want, selected := x.objectAt(key, x.now.rv)
		if has, held := x.now.has[key]; (!got || typ == "DELETED") && (held != selected || has.rv != want.rv) {
			x.unsure[key] = true
		}
	}
}

// differ returns the first difference between the events of the truth and of a client; empty if there
// is none.
func differ(want []event, got []frame) string {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			return fmt.Sprintf("%s of %s at %d does not exist", got[i].typ, got[i].key, got[i].rv)
		case i >= len(got) || want[i].rv < got[i].rv:
			return fmt.Sprintf("%s of %s at %d is missing", want[i].typ, want[i].key, want[i].rv)
		case want[i].typ != got[i].typ || want[i].rv != got[i].rv || !want[i].sameObject(got[i].version):
			return fmt.Sprintf("%s %v is %s %v", want[i].typ, want[i].version, got[i].typ, got[i].version)
		}
	}
	return ""
}
