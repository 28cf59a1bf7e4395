package bolt_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

const (
	imagePage   = 4096
	imageSector = 512
)

// TestCrashImages builds, from the file before and after each commit of a run, the images that a
// power cut may leave, and opens each as a start after a power cut does. An honest disk has either
// written the meta page after all data or not at all, in whole sectors; then nothing but the commit
// itself may be lost. A lying disk has lost any of the pages that it reported as written; then the
// image is the old state or the new one, or Check finds a problem.
func TestCrashImages(t *testing.T) {
	for _, count := range []int{40, 300} {
		t.Run(fmt.Sprint(count, " objects"), func(t *testing.T) {
			t.Parallel()
			crashImages(t, count)
		})
	}
}

func crashImages(t *testing.T, count int) {
	rounds := 40
	if testing.Short() {
		rounds = 4
	}
	random := rand.New(rand.NewPCG(7, 7))
	dir := t.TempDir()
	path := filepath.Join(dir, "live.db")
	db := openDB(t, path, bolt.Options{FlushInterval: time.Hour, ReplaceBudget: 3000, ViewLimit: time.Hour})
	defer db.Close()
	c := openCollection(t, db, storetest.Info("pods"), lifeIndexes()...)
	now := storetest.NewModel(storetest.Info("pods"), lifeIndexes()...)
	last, rv, slices := now.Clone(), 100, 0

	before := readFile(t, path)
	x := &images{t: t, path: filepath.Join(dir, "image.db"), random: random}
	for round := range rounds {
		var changes []store.Change
		for range 1 + random.IntN(count/8) {
			i := random.IntN(count)
			if rv++; random.IntN(4) == 0 {
				changes = append(changes, store.Change{Key: sampleObject(i, 0).Key(), RV: fmt.Sprint(rv)})
			} else {
				changes = append(changes, storetest.Put(sampleObject(i, rv)))
			}
		}
		changes = lastOfEach(changes)
		rv += 50
		cp := storetest.Checkpoint(rv)
		cp.Cluster, cp.ListReason = "one", "expired"
		if round%10 == 0 {
			r, err := c.Replace()
			require.NoError(t, err)
			for i := range count {
				if round == 0 {
					changes = append(changes, storetest.Put(sampleObject(i, i+1)))
				}
			}
			changes = lastOfEach(changes)
			require.NoError(t, r.Apply(changes))
			foldSlices(t, db, 24<<10, 0)
			require.NoError(t, r.Commit(cp))
			now.Replace(storetest.Info("pods"), changes, cp)
		} else {
			b := store.Batch{Changes: changes, Checkpoint: cp}
			require.NoError(t, c.Apply(b))
			now.Apply(b)
			require.NoError(t, db.Flush())
		}
		image := func(name string, several bool) {
			after := readFile(t, path)
			x.old, x.new = last, now
			x.commit(fmt.Sprintf("round %d%s", round, name), before, after, several)
			before, last = after, now.Clone()
		}
		image("", round%10 == 0)
		if round%4 == 3 {
			slice := 0
			require.NoError(t, db.FoldSlices(24<<10, func() bool {
				if slice++; slice <= 3 || random.IntN(5) == 0 { // of some, not of all
					image(fmt.Sprintf(" slice %d", slice), false)
					slices++
				} else {
					before = readFile(t, path)
				}
				return true
			}))
			image(" fold", false)
		}
	}
	t.Logf("%d images of an honest disk; %d of a lying one, of which %d were refused; %d slices", x.honest, x.lying, x.refused, slices)
	require.Positive(t, slices)
	require.Greater(t, x.honest, 10*rounds)
	require.Greater(t, x.lying, 8*rounds)
}

// lastOfEach returns the newest change of each key.
func lastOfEach(changes []store.Change) []store.Change {
	at := map[string]int{}
	var unique []store.Change
	for _, ch := range changes {
		if i, ok := at[ch.Key]; ok {
			unique[i] = ch
			continue
		}
		at[ch.Key] = len(unique)
		unique = append(unique, ch)
	}
	return unique
}

// images makes the images between two states of a file and opens them.
type images struct {
	t        *testing.T
	path     string
	opts     bolt.Options
	random   *rand.Rand
	old, new *storetest.Model // of one collection

	honest, lying, refused int
}

// commit makes the images between two states of the file. several is true if more than one
// transaction came between them, so that there are further states.
func (x *images) commit(name string, before, after []byte, several bool) {
	before = append(bytes.Clone(before), make([]byte, max(0, len(after)-len(before)))...)
	var pages []int // that differ, without the two meta pages
	for i := 2 * imagePage; i < len(after); i += imagePage {
		if !bytes.Equal(before[i:i+imagePage], after[i:i+imagePage]) {
			pages = append(pages, i)
		}
	}
	with := func(base []byte, from []byte, at ...int) []byte {
		b := bytes.Clone(base)
		for _, i := range at {
			copy(b[i:i+imagePage], from[i:i+imagePage])
		}
		return b
	}
	some := func() []int {
		var picked []int
		for _, i := range pages {
			if x.random.IntN(2) == 0 {
				picked = append(picked, i)
			}
		}
		return picked
	}
	if !several {
		// Data first, in any order and cut at any sector; then the meta page, torn or whole.
		x.open(name+": nothing but data", with(before, after, pages...), true)
		for range 4 {
			x.open(name+": some of the data", with(before, after, some()...), true)
			b := with(before, after, some()...)
			if len(pages) > 0 {
				i := pages[x.random.IntN(len(pages))] + imageSector*x.random.IntN(imagePage/imageSector)
				copy(b[i:i+imageSector], after[i:i+imageSector])
			}
			x.open(name+": a torn page of data", b, true)
		}
		for meta := range 2 {
			for _, n := range []int{16, 24, 40, 64, 80, imageSector} {
				b := with(before, after, pages...)
				copy(b[meta*imagePage:meta*imagePage+n], after[meta*imagePage:])
				x.open(fmt.Sprintf("%s: %d bytes of meta %d", name, n, meta), b, true)
			}
		}
	}
	x.open(name+": all of it", after, true)

	x.open(name+": meta without data", with(after, before, pages...), false)
	for _, i := range pages {
		x.open(fmt.Sprintf("%s: all but page %d", name, i/imagePage), with(after, before, i), false)
		zero := bytes.Clone(after)
		clear(zero[i : i+imagePage])
		x.open(fmt.Sprintf("%s: page %d is zero", name, i/imagePage), zero, false)
	}
	for range 6 {
		x.open(name+": all but some pages", with(after, before, some()...), false)
	}
}

// open opens an image as after a power cut.
func (x *images) open(name string, image []byte, honest bool) {
	t := x.t
	if honest {
		x.honest++
	} else {
		x.lying++
	}
	require.NoError(t, os.WriteFile(x.path, image, 0o600))
	report, err := bolt.Check(x.path, bolt.Keyring{}, nil)
	if err != nil || !report.OK() {
		require.False(t, honest, "%s: refused: %v %v", name, err, report)
		x.refused++
		return
	}
	db, err := bolt.Open(x.path, x.opts)
	require.NoError(t, err, name)
	defer db.Close()
	v, err := db.View(x.old.Info.ID)
	require.NoError(t, err, name)
	defer v.Close()
	asOld := x.old.Diff(v)
	if asOld == nil {
		return
	}
	asNew := x.new.Diff(v)
	require.NoError(t, asNew, "%s: neither the new state nor the old one: %v", name, asOld)
}
