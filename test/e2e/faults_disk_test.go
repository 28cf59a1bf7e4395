package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
	"github.com/snapcache/snapcache/test/e2e/faultfs"
)

// scriptSteps is the length of the run in which each fault occurs.
const scriptSteps = 40

// TestFaultDiskFullStore runs a script once for each of its writes, for which the disk is full, or
// is from then on. Readers see the model's state all along, and when there is space again nothing
// is lost. Like all tests of this file it uses a file in clear, and an encrypted one that is
// rewritten under other keys.
func TestFaultDiskFullStore(t *testing.T) {
	faultAtEach(t, "a write", syscall.ENOSPC, func(at int) faultfs.Faults {
		return faultfs.Faults{NoSpace: faultfs.Window{Skip: at, Count: 1}}
	}, func(c faultfs.Counts) int { return c.Writes })
	faultAtEach(t, "from a write on", syscall.ENOSPC, func(at int) faultfs.Faults {
		return faultfs.Faults{NoSpace: faultfs.Window{Skip: at, Count: faultfs.Always.Count}}
	}, func(c faultfs.Counts) int { return c.Writes })
}

// TestFaultDiskSync is the same with failed syncs, after which the disk has some of the data and
// the kernel does not write it again.
func TestFaultDiskSync(t *testing.T) {
	faultAtEach(t, "a sync", syscall.EIO, func(at int) faultfs.Faults {
		return faultfs.Faults{Sync: faultfs.Window{Skip: at, Count: 1}}
	}, func(c faultfs.Counts) int { return c.Syncs })
	faultAtEach(t, "from a sync on", syscall.EIO, func(at int) faultfs.Faults {
		return faultfs.Faults{Sync: faultfs.Window{Skip: at, Count: faultfs.Always.Count}}
	}, func(c faultfs.Counts) int { return c.Syncs })
}

// TestFaultDiskWrite is the same with writes that fail for another reason.
func TestFaultDiskWrite(t *testing.T) {
	faultAtEach(t, "two writes", syscall.EIO, func(at int) faultfs.Faults {
		return faultfs.Faults{Write: faultfs.Window{Skip: at, Count: 2}}
	}, func(c faultfs.Counts) int { return c.Writes })
}

// faultAtEach runs a script, in clear and encrypted, with a fault at each of its operations; the
// short form, at some of them.
func faultAtEach(t *testing.T, name string, want error, faults func(at int) faultfs.Faults, count func(faultfs.Counts) int) {
	t.Run(name, func(t *testing.T) { faultAtEachOf(t, script{}, 12, want, faults, count) })
	t.Run(name+", encrypted", func(t *testing.T) { faultAtEachOf(t, script{sealed: true}, 6, want, faults, count) })
}

func faultAtEachOf(t *testing.T, s script, short int, want error, faults func(at int) faultfs.Faults, count func(faultfs.Counts) int) {
	random := random(t)
	s.seed = random.Uint64()
	total := count(s.run(t, faultfs.Faults{}, nil))
	stride := max(1, total/times(short, total))
	runs, failed, late := 0, 0, 0
	// It may be that of a few faults the store itself retried all.
	spread(random.IntN(stride), stride, total, func(at int) {
		what := fmt.Sprintf("%d of %d, %+v", at, total, s)
		c := s.run(t, faults(at), func(err error) {
			// Of some errors bbolt keeps the text alone.
			require.True(t, strings.Contains(err.Error(), want.Error()) || errors.Is(err, bolt.ErrNoRoom), "%s: %v", what, err)
			failed++
		})
		if c.Failed == 0 {
			// A snapshot contains the time, so one run may have a write less than another; and a
			// rewrite under another key may be done once or twice.
			late++
			require.True(t, s.sealed || at > total*9/10, what)
			return
		}
		runs++
	}, func() bool { return failed == 0 })
	t.Logf("%d runs of a script of %d operations, with %d failed steps; %d ended before the fault came", runs, total, failed, late)
	require.NotZero(t, runs, "no fault came")
	require.NotZero(t, failed)
	require.Less(t, late, total/2)
}

// script is a sequence of random steps.
type script struct {
	seed   uint64
	sealed bool // the file is always encrypted
}

// run takes the steps on a disk with faults, then some on the same disk without, and ends with a
// power cut that drops all that is not durable. It calls failing with the error of each failed
// step.
func (s script) run(t *testing.T, f faultfs.Faults, failing func(error)) faultfs.Counts {
	x := newFaultyStore(t, rand.New(rand.NewPCG(s.seed, 2))) //nolint:gosec // choices of a test
	defer x.disk.Close()
	if x.sealed = s.sealed; x.sealed {
		x.rotate()
	}
	_, err := x.start()
	require.NoError(t, err)
	require.NoError(t, x.open())
	x.disk.Set(f)
	for step := range scriptSteps {
		what := fmt.Sprintf("%+v, faults %+v, step %d", s, f, step)
		if err := x.attempt(); err != nil {
			require.NotNil(t, failing, "%s: %v", what, err)
			failing(err)
		}
		if x.db == nil {
			return x.afterReopening(what, f) // it was closed, and could not be opened
		}
		x.equal(what)
	}
	counts := x.disk.Counts()
	x.disk.Set(faultfs.Faults{})
	require.NoError(t, x.flush(), "a flush once there is room again")
	require.NoError(t, x.db.Stats().FlushError)
	x.equal("caught up")
	for range 5 {
		require.NoError(t, x.attempt())
		x.equal("afterwards")
	}
	require.NoError(t, x.flush())
	x.powerCut(fmt.Sprintf("%+v, faults %+v", s, f))
	return counts
}

// attempt takes a step that may fail: then readers see either none or all of its changes.
func (x *faultyStore) attempt() error {
	before := make([]*storetest.Model, len(x.colls))
	for i, c := range x.colls {
		before[i] = c.now
	}
	err := x.step()
	if err == nil || x.db == nil {
		return err
	}
	for i, c := range x.colls {
		// A list whose last sync failed is visible all the same, and returned an error.
		if c.tried != nil && x.diff(c, before[i]) != nil {
			x.set(c, c.tried)
		}
	}
	return err
}

// afterReopening waits for free space and opens the store again.
func (x *faultyStore) afterReopening(what string, _ faultfs.Faults) faultfs.Counts {
	x.t.Helper()
	counts := x.disk.Counts()
	x.disk.Set(faultfs.Faults{})
	verdict, err := x.start()
	require.NoError(x.t, err, what)
	require.Equal(x.t, restore.Opened, verdict.Outcome, what)
	require.NoError(x.t, x.settle(func(c *faultyCollection) []*storetest.Model { return append(slices.Clone(c.maybe), c.now) }), what)
	require.NoError(x.t, x.open())
	for range 5 {
		require.NoError(x.t, x.attempt())
		x.equal(what)
	}
	require.NoError(x.t, x.flush())
	x.powerCut(what)
	return counts
}

// powerCut drops all that is not durable; here everything is.
func (x *faultyStore) powerCut(what string) {
	x.t.Helper()
	x.requireSealed(what)
	x.disk.Cut(faultfs.DropAll)
	_ = x.db.Close() // there is no power
	x.disk.Restart()
	boot := bootID(x.t)
	x.disk.Replace(boot, anotherBoot(boot))
	verdict, err := x.start()
	require.NoError(x.t, err, what)
	require.Equal(x.t, restore.Opened, verdict.Outcome, "%s: %v", what, verdict)
	x.equal(what + ": after a power cut")
	require.NoError(x.t, x.db.Close())
}
