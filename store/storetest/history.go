package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// history holds the past states of a model, to check for each of them that the changes since then
// lead to the present state.
type history struct {
	horizon string
	past    []moment // with a checkpoint at or past the horizon
	highest int      // resourceVersion of any change or checkpoint
	gaps    []gap

	// loose is set if the newest batch has a change without a place in the order: the store may
	// have moved the horizon.
	loose bool

	attributes attributes
}

// moment is a synced collection at one checkpoint.
type moment struct {
	rv      string
	objects map[string]*object.Object

	// quiet is set if no object was newer than the checkpoint, so that the types of later events
	// are known.
	quiet bool
}

// gap is two resourceVersions between which the history has no states.
type gap struct{ from, to int }

func (g gap) within(rv int) bool { return g.from < rv && rv < g.to }

// maxPast is the maximum number of moments that a model keeps.
const maxPast = 24

func (h history) clone() history {
	h.past, h.gaps = slices.Clone(h.past), slices.Clone(h.gaps)
	return h
}

// begin drops the past, and begins another history at m's state.
func (h *history) begin(m *Model) {
	*h = history{horizon: m.Checkpoint.RV, highest: number(m.Checkpoint.RV)}
	if h.highest >= 0 {
		for _, o := range m.Objects {
			h.highest = max(h.highest, number(o.GetResourceVersion()))
		}
		h.horizon = strconv.Itoa(h.highest)
	}
	h.attributes.track(m.attributes, h.highest)
	h.remember(m)
}

// remember adds m's state to the past.
func (h *history) remember(m *Model) {
	at := moment{rv: m.Checkpoint.RV, objects: maps.Clone(m.Objects), quiet: h.highest <= number(m.Checkpoint.RV)}
	h.past = slices.DeleteFunc(h.past, func(p moment) bool { return p.rv == at.rv })
	h.past = append(h.past, at)
	if len(h.past) > maxPast {
		h.past = slices.Delete(h.past, 0, 1)
	}
}

// skip adds the gap of a batch, nil for none, which moves m's checkpoint to next.
func (h *history) skip(m *Model, g *store.Gap, next string) {
	known := number(m.Checkpoint.RV)
	if g == nil || known < 0 || number(h.horizon) < 0 {
		return
	}
	added := gap{max(known, number(g.First)-1), number(next)}
	if last := number(g.Last); last >= 0 {
		added.to = min(added.to, last)
	}
	if added.within(added.to - 1) {
		h.gaps = append(h.gaps, added)
	}
}

// diffSkips compares the gaps past the horizon with the model's.
func (m *Model) diffSkips(v store.View, horizon store.Horizon) error {
	var ask []int
	for _, p := range m.history.past {
		ask = append(ask, number(p.rv))
	}
	for _, g := range m.history.gaps {
		ask = append(ask, g.from, g.from+1, g.to-1, g.to)
	}
	for _, rv := range ask {
		if rv < 0 || rv < number(horizon.RV) || number(horizon.RV) < 0 {
			continue
		}
		got, err := v.Skips(strconv.Itoa(rv))
		if err != nil {
			return fmt.Errorf("Skips(%d): %w", rv, err)
		}
		if want := slices.ContainsFunc(m.history.gaps, func(g gap) bool { return g.within(rv) }); got != want {
			return fmt.Errorf("Skips(%d): %v, want %v: %v", rv, got, want, m.history.gaps)
		}
	}
	return nil
}

// record adds a batch to the history, before m has it.
func (h *history) record(m *Model, changes []store.Change, next string) {
	known := number(m.Checkpoint.RV)
	h.attributes.track(m.attributes, h.highest)
	if number(next) < known {
		defer func() { h.attributes = attributes{} }()
	}
	seen := map[int]bool{}
	for _, ch := range changes {
		old := m.Objects[ch.Key]
		rv := number(ch.RV)
		switch {
		case ch.Object != nil:
			rv = number(ch.Object.GetResourceVersion())
			if old != nil && old.GetUID() != ch.Object.GetUID() {
				h.loose = true // there may be no free number for the deletion
			}
		case old == nil:
			continue
		case ch.RV == "":
			h.loose = h.loose || number(next)-known < 2*len(changes)
			continue
		}
		h.loose = h.loose || rv <= known || seen[rv] || rv <= h.highest && h.taken(m, rv)
		seen[rv] = true
		h.highest = max(h.highest, rv)
	}
	h.loose = h.loose || number(next) < known || number(next) < 0
	h.highest = max(h.highest, number(next))
}

// taken reports whether an object already has a resourceVersion.
func (h *history) taken(m *Model, rv int) bool {
	for _, o := range m.Objects {
		if o.GetResourceVersion() == strconv.Itoa(rv) {
			return true
		}
	}
	return false
}

// number returns a resourceVersion as a number, -1 if it is none.
func number(rv string) int {
	n, err := strconv.Atoi(rv)
	if err != nil {
		return -1
	}
	return n
}

// before reports whether a is below a horizon; an opaque number is below every other.
func before(a, horizon string) bool {
	return number(a) < number(horizon) || number(a) < 0 && a != horizon
}

// diffHistory compares the history of a view with the model's.
func (m *Model) diffHistory(v store.View) error {
	if errors.Is(firstError(v, ""), store.ErrNoHistory) {
		return nil // a store without one; historyRules checks the others
	}
	got, err := v.Horizon()
	if err != nil {
		return fmt.Errorf("horizon: %w", err)
	}
	h := &m.history
	switch {
	case h.loose:
		if number(got.RV) < number(h.horizon) {
			return fmt.Errorf("horizon: %q, before %q", got.RV, h.horizon)
		}
	case got.RV != h.horizon:
		return fmt.Errorf("horizon: %q, want %q", got.RV, h.horizon)
	}
	if err := m.diffTooOld(v, got); err != nil {
		return err
	}
	if err := m.diffSkips(v, got); err != nil {
		return err
	}
	for _, p := range h.past {
		if before(p.rv, got.RV) {
			continue
		}
		if err := m.diffSince(v, p); err != nil {
			return fmt.Errorf("Changes(%q): %w", p.rv, err)
		}
	}
	// The store's horizon was not known exactly; now it is.
	h.horizon, h.loose = got.RV, false
	h.past = slices.DeleteFunc(h.past, func(p moment) bool { return before(p.rv, h.horizon) })
	return nil
}

// diffTooOld checks the errors of Changes before the horizon and after the checkpoint.
func (m *Model) diffTooOld(v store.View, horizon store.Horizon) error {
	ask := []string{"", "x"}
	if n := number(horizon.RV); n > 0 {
		ask = append(ask, strconv.Itoa(n-1))
	}
	for _, since := range ask {
		err := firstError(v, since)
		tooOld := (*store.TooOldError)(nil)
		if !errors.As(err, &tooOld) || tooOld.Horizon != horizon {
			return fmt.Errorf("Changes(%q) beyond the horizon %+v: error %w", since, horizon, err)
		}
	}
	if n := number(m.Checkpoint.RV); m.Synced && n >= 0 && number(horizon.RV) >= 0 && n >= number(horizon.RV) {
		err := firstError(v, strconv.Itoa(n+1))
		return diffError("Changes of the future", err, store.ErrAhead)
	}
	return nil
}

func firstError(v store.View, since string) error {
	for _, err := range v.Changes(since) {
		return err
	}
	return nil
}

// diffSince applies the changes since a moment to that moment and compares the result with m.
func (m *Model) diffSince(v store.View, p moment) error {
	objects, last := maps.Clone(p.objects), p.rv
	for e, err := range v.Changes(p.rv) {
		if err != nil {
			return err
		}
		if cmp, ok := object.CompareRV(e.RV, last); !ok || cmp <= 0 {
			return fmt.Errorf("%s comes after %s", e.RV, last)
		}
		last = e.RV
		if e.Object == nil || e.Object.Key() != e.Key {
			return fmt.Errorf("%s: the object of %s is %s", e.RV, e.Key, show(e.Object))
		}
		if !e.Deleted && e.Object.GetResourceVersion() != e.RV {
			return fmt.Errorf("%s: the object of %s is of %s", e.RV, e.Key, e.Object.GetResourceVersion())
		}
		t, ok := e.Since(p.rv)
		old, had := objects[e.Key]
		if want := wantType(e, had); p.quiet && (ok != (want != "") || ok && t != want) {
			return fmt.Errorf("%s: %s is %q (%v), want %q", e.RV, e.Key, t, ok, want)
		}
		if err := m.diffAttributes(e, p); err != nil {
			return fmt.Errorf("%s: %s: %w", e.RV, e.Key, err)
		}
		if e.Deleted && p.quiet && had && e.Object.GetUID() != old.GetUID() {
			return fmt.Errorf("%s: the deleted object of %s is not the one of before", e.RV, e.Key)
		}
		if e.Deleted {
			delete(objects, e.Key)
		} else {
			objects[e.Key] = e.Object
		}
	}
	if !maps.EqualFunc(objects, m.Objects, sameObject) {
		return fmt.Errorf("the changes lead to %d objects, want %d: %v, want %v", len(objects), len(m.Objects), versions(objects), versions(m.Objects))
	}
	return nil
}

// wantType returns the expected type of an event for a reader that has the key or not.
func wantType(e store.Event, had bool) store.EventType {
	switch {
	case e.Deleted && had:
		return store.Deleted
	case e.Deleted:
		return ""
	case had:
		return store.Modified
	default:
		return store.Added
	}
}

func versions(objects map[string]*object.Object) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		all = append(all, key+"@"+objects[key].GetResourceVersion())
	}
	return all
}
