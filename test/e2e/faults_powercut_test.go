package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/restore"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
	"github.com/snapcache/snapcache/test/e2e/faultfs"
)

// cutsPerDisk is the number of power cuts on one disk.
const cutsPerDisk = 25

// TestFaultPowerCutStore writes, flushes, folds, lists, compacts and copies a store, and cuts the
// power at any of the changes on the disk. On a disk that does not lie, the next start finds the
// last durable state or a later one, and never sets a file aside. On a disk that lies about some
// syncs it finds any earlier state, or it reports the file as corrupt and begins with a snapshot,
// or empty. The encrypted stores get another key, or none, after every few cuts.
func TestFaultPowerCutStore(t *testing.T) {
	for _, tc := range []struct {
		name      string
		cuts      int
		lies      int
		encrypted bool
	}{
		{"honest", times(60, 2500), 0, false}, {"lying", times(60, 2500), 95, false},
		{"honest, encrypted", times(30, 2500), 0, true}, {"lying, encrypted", times(30, 2500), 95, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := powerCuts{t: t, cuts: tc.cuts, lies: tc.lies, encrypted: tc.encrypted, verdicts: map[string]int{}}
			random := random(t)
			for p.made < p.cuts {
				p.disk(newFaultyStore(t, random), min(cutsPerDisk, p.cuts-p.made))
			}
			t.Logf("%d power cuts, %d of them lost something that was not durable, %d went unnoticed in a file that was closed; verdicts:", p.made, p.older, p.unnoticed)
			for _, v := range slices.Sorted(maps.Keys(p.verdicts)) {
				t.Logf("%6d %s", p.verdicts[v], v)
			}
			if p.encrypted {
				t.Logf("%d starts with another key: %d files rewritten, %d power cuts before that", p.rotated, p.rewritten, p.rotated-p.rewritten)
				require.True(t, !*full || p.rewritten > 0)
			}
		})
	}
}

type powerCuts struct {
	t         *testing.T
	cuts      int  // to make
	lies      int  // percentage of the syncs, at most
	encrypted bool // with keys that change

	made      int
	older     int
	unnoticed int // losses on a disk that lied
	rotated   int // starts with a file to rewrite under another key
	rewritten int // how many of those completed the rewrite
	verdicts  map[string]int
}

// disk cuts the power of one disk this many times.
func (p *powerCuts) disk(x *faultyStore, cuts int) {
	t := p.t
	defer x.disk.Close() // the test's end would come too late: there would be a hundred of them
	boot := bootID(t)
	if p.encrypted {
		x.rotate()
	}
	for range cuts {
		x.disk.Set(faultfs.Faults{PowerFor: 1 + x.random.IntN(120), Lies: x.random.IntN(p.lies + 1)})
		var err error
		if x.db == nil {
			_, err = x.start()
		}
		if err == nil {
			err = x.open()
		}
		if err == nil && x.db.Stats().EncryptionDue {
			p.rotated++
			if err = x.rekey(); err == nil {
				p.rewritten++
				x.equal("rewritten under another key")
			}
		}
		for err == nil {
			err = x.step()
		}
		what := fmt.Sprintf("cut %d, reported as %v", p.made, err)
		if x.db != nil {
			_ = x.db.Close() // there is no power
			x.db = nil
		}
		x.disk.Cut(faultfs.Choice(x.random.IntN(4)))
		x.disk.Restart()
		x.disk.Replace(boot, anotherBoot(boot))
		x.disk.Set(faultfs.Faults{})

		if p.encrypted && x.random.IntN(3) == 0 {
			x.rotate()
		}
		verdict, err := x.start()
		require.NoError(t, err, what)
		p.made++
		if !p.judge(x, what, verdict) {
			break
		}
	}
	require.NoError(t, x.db.Close())
}

// judge checks what the start after a power cut made of the file, and reports whether the run can
// continue with it.
func (p *powerCuts) judge(x *faultyStore, what string, verdict restore.File) bool {
	t := p.t
	outcome := fmt.Sprintf("%s (left %s)", verdict.Outcome, verdict.Ending)
	among := func(c *faultyCollection) []*storetest.Model { return append(slices.Clone(c.maybe), c.now) }
	if p.lies > 0 {
		among = func(c *faultyCollection) []*storetest.Model { return c.ever }
	}
	switch verdict.Outcome {
	case restore.Quarantined:
		require.NotZero(t, p.lies, "%s: an honest disk corrupted the file: %v", what, verdict)
		require.NotEmpty(t, verdict.Reason, what)
		require.Error(t, verdict.Cause, what)
		outcome += ": " + verdict.Reason
		if verdict.From != nil {
			outcome += ", from a snapshot"
		}
	case restore.Opened:
		require.Zero(t, verdict.Corrupt, "%s: %v", what, verdict)
	case restore.Created:
	default:
		t.Fatalf("%s: %v", what, verdict)
	}
	p.verdicts[outcome]++
	was := make([]*storetest.Model, len(x.colls))
	for i, c := range x.colls {
		was[i] = c.now
	}
	what += "; " + verdict.String()
	x.genuine(what)
	err := x.settle(among)
	if err != nil && p.lies > 0 && verdict.Ending == bolt.Clean {
		// A file that was closed is not checked.
		p.unnoticed++
		return false
	}
	require.NoError(t, err, what)
	for i, c := range x.colls {
		if was[i] != nil && (c.now == nil || c.now.Checkpoint.RV != was[i].Checkpoint.RV) {
			p.older++
			break
		}
	}
	return true
}
