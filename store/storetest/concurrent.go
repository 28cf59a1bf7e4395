package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

var concurrentRules = []rule{
	{name: "readers beside a writer", run: testReadersBesideWriter},
	{name: "writers of several collections", run: func(t *testing.T, h Harness) {
		var wg sync.WaitGroup
		for i := range 4 {
			s := newSubject(t, h, Info("c"+strconv.Itoa(i)), store.LabelIndex("app", "app"))
			wg.Go(func() {
				for rv := range 20 {
					if err := s.coll.Apply(store.Batch{Checkpoint: Checkpoint(rv + 1), Changes: []store.Change{
						Put(cm("shop", "x", rv, "app", strconv.Itoa(rv))), Put(cm("shop", "y"+strconv.Itoa(rv), rv)),
					}}); err != nil {
						t.Errorf("%s: %v", s.want.ID, err)
						return
					}
					if got := s.coll.State().Count; got != int64(rv+2) {
						t.Errorf("%s: %d objects after round %d", s.want.ID, got, rv)
					}
				}
			})
			t.Cleanup(wg.Wait)
		}
		wg.Wait()
	}},
}

// generations writes states that any of their parts identifies: in generation n all objects and the
// checkpoint have the RV n and the index "gen" has n for its only value; odd generations have one
// object more.
type generations struct{ keys int }

func (g generations) count(n int) int { return g.keys + n%2 }

func (g generations) changes(n int) []store.Change {
	gen := strconv.Itoa(n)
	var changes []store.Change
	for i := range g.keys {
		changes = append(changes, Put(cm("ns-"+strconv.Itoa(i%3), "x"+strconv.Itoa(i), n, "gen", gen)))
	}
	if n%2 == 1 {
		return append(changes, Put(cm("ns-0", "odd", n, "gen", gen)))
	}
	return append(changes, Delete("ns-0/odd"))
}

// check returns the generation of a view, and an error if a part of the view is not of it.
func (g generations) check(v store.View) (n int, err error) {
	s := v.State()
	if n, err = strconv.Atoi(s.RV); err != nil {
		return 0, err
	}
	if s.Count != int64(g.count(n)) {
		return n, fmt.Errorf("%d objects in the state, want %d", s.Count, g.count(n))
	}
	var count, bytes int64
	for o, err := range v.Objects("", "") {
		if err != nil {
			return n, err
		}
		if o.GetResourceVersion() != s.RV {
			return n, fmt.Errorf("%s is of generation %s", o.Key(), o.GetResourceVersion())
		}
		count, bytes = count+1, bytes+int64(o.Size())
	}
	if count != s.Count || bytes != s.Bytes {
		return n, fmt.Errorf("%d objects of %d bytes, in the state %d of %d", count, bytes, s.Count, s.Bytes)
	}
	for e, err := range v.IndexEntries("gen", "", store.IndexEntry{}) {
		if err != nil {
			return n, err
		}
		if e.Value != s.RV {
			return n, fmt.Errorf("%s is filed under generation %s", e.Key, e.Value)
		}
		count--
	}
	if count != 0 {
		return n, fmt.Errorf("%d index entries are missing", count)
	}
	var want error
	if n%2 == 0 {
		want = store.ErrNotFound
	}
	_, err = v.Get("ns-0/odd")
	return n, diffError("get the object of odd generations", err, want)
}

func testReadersBesideWriter(t *testing.T, h Harness) {
	rounds := 120
	if testing.Short() {
		rounds = 40
	}
	g := generations{keys: 40}
	s := newSubject(t, h, Info("a"), store.LabelIndex("gen", "gen"))
	r, err := s.coll.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply(g.changes(0)))
	require.NoError(t, r.Commit(Checkpoint(0)))

	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			newest := 0
			for reading := true; reading; {
				select {
				case <-done:
					reading = false // after one more read, of the last state
				default:
				}
				n, err := readGeneration(h, s.coll, g, i%2 == 0)
				if err != nil {
					t.Errorf("reader %d, generation %d: %v", i, n, err)
					return
				}
				if n < newest {
					t.Errorf("reader %d: generation %d after %d", i, n, newest)
					return
				}
				newest = n
			}
			if newest != rounds {
				t.Errorf("reader %d: ends at generation %d of %d", i, newest, rounds)
			}
		})
	}
	err = writeGenerations(s.coll, g, rounds)
	close(done)
	wg.Wait()
	require.NoError(t, err)
}

func readGeneration(h Harness, coll store.Collection, g generations, viaDB bool) (int, error) {
	open := coll.View
	if viaDB {
		open = func() (store.View, error) { return h.DB().View("a") }
	}
	_, _ = coll.Info(), h.DB().Stats()
	if _, err := h.DB().Collections(); err != nil {
		return 0, err
	}
	floor, err := strconv.Atoi(coll.State().RV)
	if err != nil {
		return 0, err
	}
	if l, ok := coll.(lister); ok && !viaDB {
		n, err := g.checkLists(l)
		if err == nil && n < floor {
			err = fmt.Errorf("the state was at %d before the list", floor)
		}
		if err != nil {
			return n, fmt.Errorf("lists: %w", err)
		}
	}
	v, err := open()
	if err != nil {
		return 0, err
	}
	defer v.Close()
	n, err := g.check(v)
	if err == nil && n < floor {
		err = fmt.Errorf("the state was at %d before the view was opened", floor)
	}
	return n, err
}

// writeGenerations writes the generations in order, every fifth as a replacement in parts, after an
// aborted one.
func writeGenerations(coll store.Collection, g generations, rounds int) error {
	for n := 1; n <= rounds; n++ {
		if n%5 != 0 {
			if err := coll.Apply(store.Batch{Changes: g.changes(n), Checkpoint: Checkpoint(n)}); err != nil {
				return fmt.Errorf("apply generation %d: %w", n, err)
			}
			continue
		}
		for _, commit := range []bool{false, true} {
			if err := replaceGeneration(coll, g, n, commit); err != nil {
				return fmt.Errorf("replace with generation %d: %w", n, err)
			}
		}
	}
	return nil
}

func replaceGeneration(coll store.Collection, g generations, n int, commit bool) error {
	r, err := coll.Replace()
	if err != nil {
		return err
	}
	for _, ch := range g.changes(n) {
		if err := r.Apply([]store.Change{ch}); err != nil {
			return errors.Join(err, r.Abort())
		}
	}
	if !commit {
		return r.Abort()
	}
	return r.Commit(Checkpoint(n))
}
