package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

var replaceRules = []rule{
	{name: "a replacement is a difference", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "stays", 1, "app", "till")), Put(cm("shop", "goes", 1, "app", "till")))
		s.replace(t, Checkpoint(2), Delete("shop/goes"), Delete("shop/absent"), Put(cm("shop", "comes", 2, "app", "till")))
		s.check(t)
		require.Equal(t, []string{"shop/comes", "shop/stays"}, s.model.Keys("", ""))
	}},
	{name: "a replacement without changes moves the checkpoint", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		s.replace(t, Checkpoint(2))
		require.Equal(t, "2", s.coll.State().RV)
		s.check(t)
	}},
	{name: "the newest change of a key wins", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "a")), Put(cm("shop", "y", 1, "app", "a")))
		r := s.begin(t)
		var all []store.Change
		for _, changes := range [][]store.Change{
			{Put(cm("shop", "x", 2, "app", "b")), Delete("shop/y"), Put(cm("shop", "z", 2, "app", "b")), Put(cm("shop", "x", 3, "app", "c"))},
			{Delete("shop/z"), Put(cm("shop", "y", 4, "app", "d")), Put(cm("shop", "w", 4, "app", "d"))},
			{Delete("shop/w"), Put(cm("shop", "w", 5, "app", "e")), Delete("shop/x"), Put(cm("shop", "x", 5, "app", "e")), Delete("shop/x")},
		} {
			require.NoError(t, r.Apply(changes))
			all = append(all, changes...)
		}
		s.commit(t, r, Checkpoint(5), all...)
		s.check(t)
		require.Equal(t, []string{"shop/w", "shop/y"}, s.model.Keys("", ""))
	}},
	{name: "Abort discards the changes", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"), store.LabelIndex("app", "app"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1, "app", "till")))
		r := s.begin(t)
		require.NoError(t, r.Apply([]store.Change{Delete("shop/x"), Put(cm("shop", "y", 2, "app", "till"))}))
		require.NoError(t, r.Abort())
		s.check(t)
		require.NoError(t, r.Abort())
		require.True(t, isEnded(r), "an aborted replacement takes nothing more")
		s.check(t)
		s.apply(t, Checkpoint(3), Put(cm("shop", "z", 3)))
		s.replace(t, Checkpoint(4), Put(cm("shop", "y", 4)))
		s.check(t)
	}},
	{name: "Abort leaves a collection that never was synced", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		r := s.begin(t)
		require.NoError(t, r.Apply([]store.Change{Put(cm("shop", "x", 1))}))
		require.NoError(t, r.Abort())
		require.Equal(t, store.State{}, s.coll.State())
		s.check(t)
	}},
	{name: "Abort after Commit does nothing", run: func(t *testing.T, h Harness) {
		s := newSubject(t, h, Info("a"))
		r := s.begin(t)
		x := Put(cm("shop", "x", 1))
		require.NoError(t, r.Apply([]store.Change{x}))
		s.commit(t, r, Checkpoint(1), x)
		require.NoError(t, r.Abort())
		s.check(t)
		next := s.begin(t)
		require.NoError(t, r.Abort())
		require.True(t, isEnded(r), "a committed replacement takes nothing more")
		s.commit(t, next, Checkpoint(2))
		s.check(t)
	}},
	{name: "a second writer gets ErrReplacing", run: func(t *testing.T, h Harness) {
		s, other := newSubject(t, h, Info("a")), newSubject(t, h, Info("b"))
		s.replace(t, Checkpoint(1), Put(cm("shop", "x", 1)))
		r := s.begin(t)
		y := Put(cm("shop", "y", 2))
		require.NoError(t, r.Apply([]store.Change{y}))
		_, err := s.coll.Replace()
		require.ErrorIs(t, err, store.ErrReplacing)
		err = s.coll.Apply(store.Batch{Changes: []store.Change{Delete("shop/x")}, Checkpoint: Checkpoint(9)})
		require.ErrorIs(t, err, store.ErrReplacing)
		s.check(t)
		other.apply(t, Checkpoint(3), Put(cm("shop", "x", 3)))
		other.replace(t, Checkpoint(4), Put(cm("shop", "y", 4)))
		other.check(t)
		s.commit(t, r, Checkpoint(2), y)
		s.check(t)
		s.apply(t, Checkpoint(5), Delete("shop/x"))
		s.check(t)
	}},
	{name: "large, over a synced collection", run: testLargeReplacement},
}

// isEnded reports whether a replacement refuses further changes.
func isEnded(r store.Replacement) bool {
	return r.Apply([]store.Change{Delete("shop/x")}) != nil && r.Commit(Checkpoint(99)) != nil
}

// testLargeReplacement replaces more than a store may hold in memory at once.
func testLargeReplacement(t *testing.T, h Harness) {
	n := 12_000
	if testing.Short() {
		n = 3_000
	}
	const part = 700 // changes in one call
	random := rand.New(rand.NewPCG(1, 2))
	put := func(i, rv int) store.Change {
		var payload []byte // hardly compressible
		for range 16 {
			payload = strconv.AppendUint(payload, random.Uint64(), 36)
		}
		return Put(Object(fmt.Sprintf("ns-%d", i%7), fmt.Sprintf("name-%06d", i), "uid-"+strconv.Itoa(i), strconv.Itoa(rv),
			map[string]string{"shard": strconv.Itoa(i % 100)}, string(payload)))
	}
	s := newSubject(t, h, Info("a"), store.LabelIndex("shard", "shard"))
	fill := func(rv int, changes []store.Change, during func(part int)) {
		r := s.begin(t)
		i := 0
		for chunk := range slices.Chunk(changes, part) {
			require.NoError(t, r.Apply(chunk))
			if during != nil {
				during(i)
			}
			i++
		}
		s.commit(t, r, Checkpoint(rv), changes...)
	}

	var first []store.Change
	for i := range n {
		first = append(first, put(i, 1))
	}
	fill(1, first, nil)

	// Of three objects one changes, one goes and one stays; a third is new.
	var second []store.Change
	for i := range n {
		switch i % 3 {
		case 0:
			second = append(second, put(i, 2))
		case 1:
			second = append(second, Delete(first[i].Key))
		}
		if i%3 == 0 {
			second = append(second, put(n+i, 2))
		}
	}
	before, old := s.model.Clone(), s.view(t)
	want, sample := before.State(), before.Objects[first[1].Key]
	fill(2, second, func(i int) {
		require.True(t, sameState(s.coll.State(), want), "state during the replacement")
		v := s.view(t)
		o, err := v.Get(first[1].Key)
		require.NoError(t, err)
		require.True(t, sameObject(o, sample))
		v.Close()
		if i == len(second)/part/2 {
			require.NoError(t, before.DiffRange(old, "", ""))
		}
	})
	before.Equal(t, old)
	s.check(t)

	aborted := s.begin(t)
	for chunk := range slices.Chunk(first, part) {
		require.NoError(t, aborted.Apply(chunk))
	}
	require.NoError(t, aborted.Abort())
	s.model.Equal(t, s.view(t))
	require.NoError(t, before.DiffRange(old, "", ""))
}
