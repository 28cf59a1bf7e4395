package storetest

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// goesOn returns a checkpoint that continues the history of the one before.
func goesOn(rv int) store.Checkpoint {
	cp := Checkpoint(rv)
	cp.Cluster, cp.ListReason = "one", store.ReasonExpired
	return cp
}

// deletedAt returns a deletion whose resourceVersion is known.
func deletedAt(key, rv string) store.Change { return store.Change{Key: key, RV: rv} }

// changesSince returns the changes since a resourceVersion, one line for each event.
func changesSince(t *testing.T, s *subject, since string) []string {
	v := s.view(t)
	defer v.Close()
	var lines []string
	for e, err := range v.Changes(since) {
		require.NoError(t, err)
		what, ok := e.Since(since)
		lines = append(lines, fmt.Sprintf("%s %s %s %v", e.RV, what, e.Key, ok))
	}
	return lines
}

// skipped returns the resourceVersions up to 30 whose states the history skips.
func skipped(t *testing.T, s *subject) (all []string) {
	v := s.view(t)
	defer v.Close()
	for rv := range 31 {
		skips, err := v.Skips(strconv.Itoa(rv))
		require.NoError(t, err)
		if skips {
			all = append(all, strconv.Itoa(rv))
		}
	}
	return all
}

func horizon(t *testing.T, s *subject) string { return horizonOf(t, s).RV }

func horizonOf(t *testing.T, s *subject) store.Horizon {
	v := s.view(t)
	defer v.Close()
	h, err := v.Horizon()
	require.NoError(t, err)
	return h
}

// firstList returns the checkpoint of a collection's first list.
func firstList(rv int) store.Checkpoint {
	cp := goesOn(rv)
	cp.ListReason = store.ReasonInitial
	return cp
}

var historyRules = []rule{
	{name: "starts at the first complete list", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.apply(t, goesOn(4), Put(cm("shop", "x", 4)))
		require.Empty(t, horizon(t, s))
		v := s.view(t)
		require.ErrorAs(t, firstError(v, "4"), new(*store.TooOldError))
		v.Close()
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4)), Put(cm("shop", "y", 7)))
		require.Equal(t, "10", horizon(t, s))
		require.Empty(t, changesSince(t, s, "10"))
		s.check(t)
	}},
	{name: "has the newest change of each key, and each deletion", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "x", 4)), Put(cm("shop", "y", 7)), Put(cm("shop", "z", 8)))
		s.apply(t, goesOn(12), Put(cm("shop", "x", 11)), Put(cm("shop", "n", 12)))
		s.apply(t, goesOn(15), Put(cm("shop", "x", 13)), deletedAt("shop/y", "14"), Put(cm("shop", "n", 15)))
		s.apply(t, goesOn(18), deletedAt("shop/n", "17"), Put(cm("shop", "y", 18)))
		require.Equal(t, []string{"13 MODIFIED shop/x true", "14 DELETED shop/y true", "17 DELETED shop/n false", "18 ADDED shop/y true"}, changesSince(t, s, "10"))
		require.Equal(t, []string{"17 DELETED shop/n true", "18 ADDED shop/y true"}, changesSince(t, s, "15"))
		require.Equal(t, []string{"18 ADDED shop/y true"}, changesSince(t, s, "17"))
		require.Empty(t, changesSince(t, s, "18"))
		s.check(t)
	}},
	{name: "a list: deletions at the lowest free resourceVersions", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)), Put(cm("shop", "b", 2)), Put(cm("shop", "c", 3)), Put(cm("shop", "d", 4)))
		s.replace(t, goesOn(20), Delete("shop/a"), Delete("shop/b"), Put(cm("shop", "c", 20)), Put(cm("shop", "e", 12)))
		require.Equal(t, []string{"11 DELETED shop/a true", "12 ADDED shop/e true", "13 DELETED shop/b true", "20 MODIFIED shop/c true"}, changesSince(t, s, "10"))
		require.Equal(t, "10", horizon(t, s))
		s.check(t)
	}},
	{name: "a list: deletions leave the resourceVersions of other changes", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)), Put(cm("shop", "b", 2)), Put(cm("shop", "c", 3)), Put(cm("shop", "d", 4)))
		again := Put(Object("shop", "d", "again", "12", nil, "x"))
		s.replace(t, goesOn(16), Delete("shop/a"), Delete("shop/b"), deletedAt("shop/c", "13"), again)
		require.Equal(t, []string{
			"11 DELETED shop/d true", "12 ADDED shop/d true", "13 DELETED shop/c true", "14 DELETED shop/a true", "15 DELETED shop/b true",
		}, changesSince(t, s, "10"))
		require.Equal(t, "10", horizon(t, s))
		s.check(t)
	}},
	{name: "a list: deletions use every free resourceVersion", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)), Put(cm("shop", "b", 2)), Put(cm("shop", "c", 3)))
		s.replace(t, goesOn(12), Delete("shop/a"), Delete("shop/b"))
		require.Equal(t, []string{"11 DELETED shop/a true", "12 DELETED shop/b true"}, changesSince(t, s, "10"))
		require.Equal(t, "10", horizon(t, s))
		s.check(t)
		s.replace(t, goesOn(14), Delete("shop/c"), Put(cm("shop", "d", 13)), Put(cm("shop", "e", 14)))
		require.Equal(t, "14", horizon(t, s), "none is left")
		s.check(t)
	}},
	{name: "a batch: deletions at the highest free resourceVersions", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)), Put(cm("shop", "b", 2)))
		s.applyBatch(t, store.Batch{Checkpoint: goesOn(20), Changes: []store.Change{Delete("shop/a"), deletedAt("shop/b", "20")}, Gap: &store.Gap{First: "15"}})
		require.Equal(t, []string{"19 DELETED shop/a true", "20 DELETED shop/b true"}, changesSince(t, s, "10"))
		s.check(t)
	}},
	{name: "starts again if resourceVersions are no longer comparable", run: func(t *testing.T, h Harness) {
		other := scoped("a", "label selector")
		for _, c := range []struct {
			name   string
			change func(s *subject, cp *store.Checkpoint)
		}{
			{"cluster", func(_ *subject, cp *store.Checkpoint) { cp.Cluster = "two" }},
			{"reason", func(_ *subject, cp *store.Checkpoint) { cp.ListReason = store.ReasonRVAhead }},
			{"back", func(_ *subject, cp *store.Checkpoint) { cp.RV = "5" }},
			{"opaque", func(_ *subject, cp *store.Checkpoint) { cp.RV = "x20" }},
			{"scope", func(s *subject, _ *store.Checkpoint) { s.open(t, other) }},
		} {
			s := newSubject(t, h, Info("a"))
			s.replace(t, goesOn(10), Put(cm("shop", "a", 1)), Put(cm("shop", "b", 2)))
			s.apply(t, goesOn(12), deletedAt("shop/a", "11"), Put(cm("shop", "b", 12)))
			cp := goesOn(20)
			c.change(s, &cp)
			s.replace(t, cp, Put(cm("shop", "b", 19)))
			if c.name == "back" {
				require.Equal(t, "19", horizon(t, s), "the list has an object of that resourceVersion")
			} else {
				require.Equal(t, cp.RV, horizon(t, s), c.name)
				require.Empty(t, changesSince(t, s, cp.RV), c.name)
			}
			s.check(t)
			require.NoError(t, h.DB().Drop("a"))
		}
	}},
	{name: "starts after changes that have no order", run: func(t *testing.T, h Harness) {
		for _, c := range []struct {
			name  string
			batch store.Batch
		}{
			{"one number twice", store.Batch{Checkpoint: goesOn(15), Changes: []store.Change{Put(cm("shop", "a", 14)), Put(cm("shop", "c", 14))}}},
			{"not past the checkpoint", store.Batch{Checkpoint: goesOn(15), Changes: []store.Change{Put(cm("shop", "a", 12))}}},
			{"an opaque number", store.Batch{Checkpoint: goesOn(15), Changes: []store.Change{Put(Object("shop", "a", "uid-shop-a", "x", nil, ""))}}},
			{"more deletions than numbers", store.Batch{Checkpoint: goesOn(13), Changes: []store.Change{Delete("shop/a"), Delete("shop/b")}}},
			{"a deletion at an unknown RV", store.Batch{Changes: []store.Change{Delete("shop/a")}}},
		} {
			s := newSubject(t, h, Info("a"))
			s.replace(t, goesOn(10), Put(cm("shop", "a", 1)), Put(cm("shop", "b", 2)))
			s.apply(t, goesOn(12), Put(cm("shop", "d", 12)))
			s.apply(t, c.batch.Checkpoint, c.batch.Changes...)
			want := c.batch.Checkpoint.RV
			if want == "" {
				want = "12"
			}
			require.Equal(t, want, horizon(t, s), c.name)
			s.check(t)
			s.apply(t, goesOn(20), deletedAt("shop/d", "20"))
			require.Equal(t, []string{"20 DELETED shop/d true"}, changesSince(t, s, want), c.name)
			s.check(t)
			require.NoError(t, h.DB().Drop("a"))
		}
	}},
	{name: "starts at the first list until a change is lost, or resourceVersions have another meaning", run: func(t *testing.T, h Harness) {
		restored, opaque := goesOn(30), firstList(20)
		restored.ListReason, opaque.RV = store.ReasonRVAhead, "opaque"
		for _, c := range []struct {
			name string
			next func(s *subject)
			want bool
		}{
			{"changes", func(s *subject) { s.apply(t, firstList(20), Put(cm("shop", "b", 20))) }, true},
			{"a list that continues it", func(s *subject) { s.replace(t, goesOn(20), Put(cm("shop", "b", 20))) }, true},
			{"another history", func(s *subject) { s.replace(t, restored, Put(cm("shop", "b", 20))) }, false},
			{"a change without a place", func(s *subject) { s.apply(t, firstList(20), Put(cm("shop", "b", 20)), Put(cm("shop", "c", 20))) }, false},
			{"opaque resourceVersions", func(s *subject) { s.apply(t, opaque) }, false},
		} {
			s := newSubject(t, h, Info("a"))
			s.replace(t, firstList(10), Put(cm("shop", "a", 1)))
			require.Equal(t, store.Horizon{RV: "10", Time: firstList(10).Proven(), First: true}, horizonOf(t, s))
			c.next(s)
			require.Equal(t, c.want, horizonOf(t, s).First, c.name)
			require.NoError(t, h.DB().Drop("a"))
		}
	}},
	{name: "its start never goes back", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)))
		s.apply(t, none, Put(cm("shop", "b", 14)), Put(cm("shop", "c", 14)))
		require.Equal(t, "14", horizon(t, s), "past the checkpoint, which no reader can have reached")
		s.apply(t, goesOn(12), Put(cm("shop", "d", 11)), Put(cm("shop", "e", 11)))
		require.Equal(t, "14", horizon(t, s))
		s.check(t)
	}},
	{name: "starts at the checkpoint if resourceVersions are opaque", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		cp := goesOn(10)
		cp.RV = "opaque-1"
		s.replace(t, cp, Put(cm("shop", "a", 1)))
		cp.RV = "opaque-2"
		s.apply(t, cp, Put(cm("shop", "b", 2)), Delete("shop/a"))
		require.Equal(t, "opaque-2", horizon(t, s))
		require.Empty(t, changesSince(t, s, "opaque-2"))
		v := s.view(t)
		defer v.Close()
		require.ErrorAs(t, firstError(v, "opaque-1"), new(*store.TooOldError))
		s.check(t)
	}},
	{name: "does not continue after an opaque resourceVersion", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)))
		cp := goesOn(10)
		cp.RV = "opaque"
		s.apply(t, cp, Put(cm("shop", "b", 12)))
		s.apply(t, goesOn(20), Put(cm("shop", "c", 20)))
		s.apply(t, goesOn(30), Put(cm("shop", "d", 30)))
		v := s.view(t)
		require.ErrorAs(t, firstError(v, "10"), new(*store.TooOldError))
		require.ErrorAs(t, firstError(v, "20"), new(*store.TooOldError))
		v.Close()
		require.Equal(t, "30", horizon(t, s))
		s.replace(t, goesOn(40))
		s.apply(t, goesOn(50), Put(cm("shop", "e", 50)))
		require.Equal(t, "40", horizon(t, s), "another history begins at a list")
		require.Equal(t, []string{"50 ADDED shop/e true"}, changesSince(t, s, "40"))
	}},
	{name: "a deletion at the object's own resourceVersion gets another one", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)), Put(cm("shop", "b", 2)))
		s.apply(t, goesOn(20), Put(cm("shop", "b", 20)), deletedAt("shop/a", "1"))
		require.Equal(t, []string{"19 DELETED shop/a true", "20 MODIFIED shop/b true"}, changesSince(t, s, "10"))
		s.check(t)
	}},
	{name: "times and types of changes", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)))
		s.apply(t, goesOn(20), Put(cm("shop", "b", 20)), Put(cm("shop", "a", 19)))
		s.apply(t, goesOn(30), Put(cm("shop", "b", 30)), deletedAt("shop/a", "29"))
		v := s.view(t)
		defer v.Close()
		from, err := v.Horizon()
		require.NoError(t, err)
		at := func(rv int) time.Time { return goesOn(rv).Proven() }
		require.Equal(t, store.Horizon{RV: "10", Time: at(10)}, from)
		var events []store.Event
		for e, err := range v.Changes("10") {
			require.NoError(t, err)
			events = append(events, e)
		}
		require.Len(t, events, 2)
		a, b := events[0], events[1]
		require.Equal(t, []any{at(30), time.Time{}, ""}, []any{a.Time, a.FirstTime, a.FirstRV})
		require.Equal(t, []any{at(30), at(20), "20"}, []any{b.Time, b.FirstTime, b.FirstRV})
		for _, tc := range []struct {
			e    store.Event
			t    time.Time
			want store.EventType
		}{{a, at(25), store.Deleted}, {b, at(15), store.Added}, {b, at(20), store.Added}, {b, at(25), store.Modified}} {
			got, ok := tc.e.SinceTime(tc.t)
			require.True(t, ok)
			require.Equal(t, tc.want, got)
		}
	}},
	{name: "a wrong clock trims nothing", run: func(t *testing.T, h Harness) {
		const year = 365 * 24 * time.Hour
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)))
		for i, off := range []time.Duration{0, 14 * year, -26 * year, 2 * time.Hour, -2 * time.Hour, 0} {
			cp := goesOn(20 + i)
			cp.LastEvent, cp.LastBookmark, cp.LastList = cp.LastEvent.Add(off), cp.LastBookmark.Add(off), cp.LastList.Add(off)
			s.apply(t, cp, Put(cm("shop", "b"+strconv.Itoa(i), 20+i)))
			require.Equal(t, "10", horizon(t, s))
			require.Len(t, changesSince(t, s, "10"), i+1)
		}
		s.check(t)
	}},
	{name: "gaps of lists and batches", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)), Put(cm("shop", "b", 2)))
		require.Empty(t, skipped(t, s), "the history begins at the list")
		s.apply(t, goesOn(13), Put(cm("shop", "a", 12)), Put(cm("shop", "b", 13)))
		require.Empty(t, skipped(t, s))
		s.replace(t, goesOn(17))
		require.Equal(t, []string{"14", "15", "16"}, skipped(t, s))
		s.applyBatch(t, store.Batch{Checkpoint: goesOn(24), Changes: []store.Change{Put(cm("shop", "a", 24))}, Gap: &store.Gap{First: "20", Last: "22"}})
		require.Equal(t, []string{"14", "15", "16", "20", "21"}, skipped(t, s))
		s.applyBatch(t, store.Batch{Checkpoint: goesOn(27), Gap: &store.Gap{}})
		require.Equal(t, []string{"14", "15", "16", "20", "21", "25", "26"}, skipped(t, s))
		require.Equal(t, []string{"13 MODIFIED shop/b true", "24 MODIFIED shop/a true"}, changesSince(t, s, "10"), "they are no changes")
		require.Empty(t, changesSince(t, s, "24"))
		s.check(t)
		s.replace(t, Checkpoint(30))
		require.Empty(t, skipped(t, s), "another history")
	}},
	{name: "gaps are durable", durable: true, run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)))
		s.applyBatch(t, store.Batch{Checkpoint: goesOn(14), Changes: []store.Change{Put(cm("shop", "a", 14))}, Gap: &store.Gap{First: "12", Last: "14"}})
		s.reopen(t)
		require.Equal(t, []string{"12", "13"}, skipped(t, s))
		s.replace(t, goesOn(17), Delete("shop/a"))
		s.reopen(t)
		require.Equal(t, []string{"12", "13", "15", "16"}, skipped(t, s))
		s.check(t)
	}},
	{name: "is durable", durable: true, run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, goesOn(10), Put(cm("shop", "a", 1)), Put(cm("shop", "b", 2)))
		s.apply(t, goesOn(12), deletedAt("shop/a", "11"), Put(cm("shop", "c", 12)))
		s.reopen(t)
		s.check(t)
		s.replace(t, goesOn(20), Delete("shop/b"))
		s.reopen(t)
		require.Equal(t, []string{"11 DELETED shop/a true", "12 ADDED shop/c true", "13 DELETED shop/b true"}, changesSince(t, s, "10"))
		s.check(t)
	}},
}
