package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/e2e/faultfs"
)

const filePage = 4096

// damage corrupts a file in one way.
type damage struct {
	name string
	do   func(r *rand.Rand, file []byte, page int) []byte
}

func inPage(file []byte, page int) []byte {
	return file[page*filePage : min(len(file), (page+1)*filePage)]
}

var damages = []damage{
	{"a bit of the header", func(r *rand.Rand, file []byte, page int) []byte {
		inPage(file, page)[r.IntN(16)] ^= 1 << r.IntN(8)
		return file
	}},
	{"a bit of the elements", func(r *rand.Rand, file []byte, page int) []byte {
		inPage(file, page)[16+r.IntN(128)] ^= 1 << r.IntN(8)
		return file
	}},
	{"a bit", func(r *rand.Rand, file []byte, page int) []byte {
		inPage(file, page)[r.IntN(filePage)] ^= 1 << r.IntN(8)
		return file
	}},
	{"zeros", func(_ *rand.Rand, file []byte, page int) []byte {
		clear(inPage(file, page))
		return file
	}},
	{"noise", func(r *rand.Rand, file []byte, page int) []byte {
		for i := range inPage(file, page) {
			file[page*filePage+i] = byte(r.Uint32())
		}
		return file
	}},
	{"a number of any size", func(r *rand.Rand, file []byte, page int) []byte {
		at := 4 * r.IntN(64)
		for i := range 4 {
			inPage(file, page)[at+i] = byte(r.Uint32() >> r.IntN(32))
		}
		return file
	}},
	{"another page", func(r *rand.Rand, file []byte, page int) []byte {
		copy(inPage(file, page), inPage(file, r.IntN(len(file)/filePage)))
		return file
	}},
	{"the end", func(_ *rand.Rand, file []byte, page int) []byte { return file[:page*filePage] }},
}

// TestFaultDamage corrupts each page of a file in several ways and opens the file, as after a power
// cut and as after a kill, when only the structure of its pages is checked. The process survives all of them, no object is
// served that was not stored, and the store can be written afterwards or returns an error. After a
// power cut a file is set aside unless it has exactly what was stored, or all but single records.
// If one of the two meta pages is corrupt, it may also be that of one commit before: bbolt uses the
// other page then, as it does after a power cut that tore the newest one.
func TestFaultDamage(t *testing.T) {
	t.Run("in clear", func(t *testing.T) {
		random := random(t)
		newPlainStore(t, random).damageEach(times(120, everyDamage))
	})
	t.Run("encrypted", func(t *testing.T) {
		random := random(t)
		x := newPlainStore(t, random)
		for x.keys.Primary == nil {
			x.rotate()
		}
		x.damageEach(times(80, everyDamage))
	})
}

// everyDamage is more than the number of damages.
const everyDamage = 1 << 30

// damageEach tries about this many of the damages, spread over a filled file.
func (x *faultyStore) damageEach(about int) {
	t, random := x.t, x.random
	file, before := x.filled()
	pages := usedPages(file)
	tried, verdicts := 0, map[string]int{}
	for _, page := range pages {
		for _, d := range damages {
			for _, cut := range []bool{true, false} {
				if random.IntN(len(pages)*len(damages)*2) >= about {
					continue
				}
				what := fmt.Sprintf("%s in page %d of %d, power cut %v", d.name, page, len(file)/filePage, cut)
				raw := d.do(random, bytes.Clone(file), page)
				if cut {
					boot := bootID(t)
					raw = bytes.ReplaceAll(raw, []byte(boot), []byte(anotherBoot(boot)))
				}
				c := corrupted{what: what, raw: raw, cut: cut}
				if page < 2 {
					c.before = before
				}
				verdicts[x.openCorrupt(c)]++
				tried++
			}
		}
	}
	t.Logf("%d corrupt files, of %d pages each: %v", tried, len(pages), verdicts)
}

// usedPages returns the pages of a file that were ever written to.
func usedPages(file []byte) (pages []int) {
	for page := range len(file) / filePage {
		if !bytes.Equal(inPage(file, page), make([]byte, filePage)) {
			pages = append(pages, page)
		}
	}
	return pages
}

// newPlainStore returns a store on an ordinary disk.
func newPlainStore(t *testing.T, random *rand.Rand) *faultyStore {
	x := &faultyStore{t: t, random: random, now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), objects: map[string]string{}}
	x.path = filepath.Join(t.TempDir(), "cache.db")
	x.snaps = snapshot.Dir{}
	for _, id := range []string{"pods", "widgets"} {
		x.colls = append(x.colls, &faultyCollection{id: id})
	}
	return x
}

// filled returns a file with some content of every kind, as a kill leaves it, and the states that
// its collections may have one commit before.
func (x *faultyStore) filled() (raw []byte, before map[*faultyCollection][]*storetest.Model) {
	x.t.Helper()
	_, err := x.start()
	require.NoError(x.t, err)
	require.NoError(x.t, x.open())
	for range 3 {
		for _, c := range x.colls {
			require.NoError(x.t, x.replace(c))
			require.NoError(x.t, x.apply(c))
			before = map[*faultyCollection][]*storetest.Model{}
			for _, c := range x.colls {
				before[c] = append(slices.Clone(c.maybe), c.now)
			}
			require.NoError(x.t, x.flush())
		}
	}
	raw = harness.ReadFile(x.t, x.path)
	require.NoError(x.t, x.db.Close())
	return raw, before
}

// corrupted is a corrupt file.
type corrupted struct {
	what   string
	raw    []byte
	cut    bool                                     // it was left by a power cut
	before map[*faultyCollection][]*storetest.Model // states that it may have besides the newest
}

// openCorrupt opens a corrupt file, and returns the result in a few words.
func (x *faultyStore) openCorrupt(file corrupted) string {
	x.t.Helper()
	what := file.what
	dir, err := os.MkdirTemp(x.t.TempDir(), "")
	require.NoError(x.t, err)
	defer os.RemoveAll(dir)
	x.path = filepath.Join(dir, "cache.db")
	require.NoError(x.t, os.WriteFile(x.path, file.raw, 0o600))
	verdict, err := x.start()
	require.NoError(x.t, err, what)
	x.genuine(what)
	outcome := string(verdict.Outcome)
	if verdict.Outcome == restore.Opened && file.cut && verdict.Corrupt == 0 {
		outcome += x.age(file)
	}
	// Whether it can still be written depends on the damage; if not, there is an error.
	failed := false
	for _, c := range x.colls {
		if c.c, err = x.db.Open(storetest.Info(c.id), faultIndexes()...); err != nil {
			failed = true
			continue
		}
		failed = c.c.Apply(store.Batch{Changes: x.changes(3), Checkpoint: x.checkpoint()}) != nil || failed
	}
	failed = x.db.Flush() != nil || failed
	x.genuine(what)
	_, _, err = x.db.Compact(context.Background()) // reads all of it
	failed = err != nil || failed
	failed = x.db.Close() != nil || failed
	require.False(x.t, failed && verdict.Outcome == restore.Quarantined, "%s: a new file can be written", what)
	if failed {
		outcome += ", reported by a write"
	}
	return outcome
}

// age checks that a file that was opened has the newest states, or one of those before, and
// returns which.
func (x *faultyStore) age(file corrupted) string {
	x.t.Helper()
	age := " as it was"
	for _, c := range x.colls {
		newest := x.diff(c, c.now)
		if newest == nil {
			continue
		}
		age = " one commit older"
		require.True(x.t, slices.ContainsFunc(file.before[c], func(m *storetest.Model) bool { return x.diff(c, m) == nil }),
			"%s: %s: %v", file.what, c.id, newest)
	}
	return age
}

// TestFaultDiskRead opens a store while pages of its file can't be read, one at a time: a read that
// needs the page returns an error, which is counted, and all other reads succeed. When the page is
// readable again, nothing is missing.
func TestFaultDiskRead(t *testing.T) {
	for _, tc := range []struct {
		name   string
		sealed bool
	}{{"in clear", false}, {"encrypted", true}} {
		t.Run(tc.name, func(t *testing.T) {
			x := newFaultyStore(t, random(t))
			x.noisy = true
			if x.sealed = tc.sealed; tc.sealed {
				x.rotate()
			}
			x.readEach()
		})
	}
}

// readEach makes one page after the other unreadable.
func (x *faultyStore) readEach() {
	t := x.t
	_, err := x.start()
	require.NoError(t, err)
	require.NoError(t, x.open())
	for range 3 {
		for _, c := range x.colls {
			require.NoError(t, x.replace(c))
			require.NoError(t, x.apply(c))
			require.NoError(t, x.flush())
		}
	}
	_, _, err = x.db.Compact(context.Background()) // so that reads need pages of the file, and not the journal only
	require.NoError(t, err)
	require.NoError(t, x.db.Close())
	pages := usedPages(harness.ReadFile(t, x.path))[2:] // the others are in use from the start
	stride := max(1, len(pages)/times(25, len(pages)))
	faults, failed, tried := int64(0), 0, 0
	// It may be that of a few pages none is read.
	spread(0, stride, len(pages), func(i int) {
		page := pages[i]
		what := fmt.Sprintf("page %d", page)
		tried++
		x.disk.Restart() // so that nothing is in memory
		_, err := x.start()
		require.NoError(t, err, what)
		require.NoError(t, x.open(), what)
		x.disk.Set(faultfs.Faults{BadFrom: int64(page) * filePage, BadTo: int64(page+1) * filePage})
		x.genuine(what)
		for _, c := range x.colls {
			if x.apply(c) != nil {
				failed++
			}
		}
		if x.db.Flush() != nil {
			failed++
		}
		x.genuine(what)
		faults += x.db.Stats().ReadFaults
		if x.disk.Counts().Failed > 0 {
			require.NotZero(t, x.db.Stats().ReadFaults, what)
			require.Error(t, x.db.Stats().ReadError, what)
		}
		x.disk.Set(faultfs.Faults{})
		x.equal(what + " can be read again")
		require.NoError(t, x.flush(), what)
		x.equal(what)
		require.NoError(t, x.db.Close(), what)
	}, func() bool { return faults == 0 })
	require.NotZero(t, faults)
	x.requireSealed("afterwards")
	t.Logf("%d pages: %d reads failed, and %d writes because of them", tried, faults, failed)
}

// TestFaultDamageAgent corrupts random pages of the file of an agent that is stopped, and of one
// that was killed. The agent starts, catches up and answers each time.
func TestFaultDamageAgent(t *testing.T) {
	t.Parallel()
	random := random(t)
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
- resource: pods
`})
	ids := []string{"configmaps", "pods"}
	a := x.start()
	a.awaitCaughtUp(anywhere(ids...))
	for range times(6, 100) {
		if random.IntN(2) == 0 {
			a.stop()
		} else {
			a.kill()
		}
		file := harness.ReadFile(t, x.db)
		page, d := random.IntN(len(file)/filePage), damages[random.IntN(len(damages))]
		t.Logf("%s in page %d of %d", d.name, page, len(file)/filePage)
		require.NoError(t, os.WriteFile(x.db, d.do(random, file, page), 0o600))
		a = x.start()
		a.awaitCaughtUp(anywhere(ids...))
		_ = x.run("dump", "--config", x.config) // whatever it returns, the agent must not exit
		require.True(t, a.Running())
		a.await("answers", func(*localapi.Status) string { return "" })
	}
	a.kill()
}
