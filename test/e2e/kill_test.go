package e2e

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
)

const (
	kills   = 50                     // at least
	useful  = 12                     // of them, at least, that come after something was stored, in each collection
	killMax = 600 * time.Millisecond // a kill comes at a random moment before this
)

// TestKilledAtAnyMoment kills an agent at least 50 times while objects change. After each kill the file must
// hold exactly the server's state at the checkpoint: every event up to it, and none after it. In
// the end the agent must have caught up without a second list.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	server := newChurned(t)
	s := server.settings(t)
	s.commitInterval = "10ms" // so that most kills find newer stored changes: a few changes wait longer
	x := newSite(t, s)

	k := newKilled(server)
	for i := 0; i < kills || k.fewest() <= useful; i++ {
		a := x.start()
		// Some kills hit the start, the others an agent that has events to store, in one collection
		// or several.
		a.await("far enough", func(s *localapi.Status) string { return caughtUp(s, i%4) })
		delay := rand.N(killMax)
		if i == 0 {
			delay = 0 // the first list must not be complete yet
		}
		sleep(t, delay)
		a.kill()

		what := fmt.Sprintf("kill %d, %s after it was up", i, delay.Round(time.Millisecond))
		k.check(x, what)
	}
	for _, id := range recorded {
		t.Logf("%s: %d checkpoints", id, len(k.checkpoints[id]))
	}

	a := x.start()
	server.settle(t, a)
	for id, c := range a.awaitCaughtUp(anywhere(recorded...)) {
		require.Zero(t, c.Lists, "%s: lists", id)
		require.Equal(t, k.first[id].LastList, c.LastList, "%s: it was listed again", id)
		require.Equal(t, "initial", c.ListReason, id)
	}
}

// killed compares the files of killed agents with the server's states.
type killed struct {
	server      *churned
	first       map[string]localapi.Collection // as it was when first synced
	checkpoints map[string]map[string]bool
}

func newKilled(server *churned) *killed {
	return &killed{server, map[string]localapi.Collection{}, map[string]map[string]bool{}}
}

// fewest returns the number of checkpoints of the collection that has the fewest.
func (k *killed) fewest() int {
	n := math.MaxInt
	for _, id := range recorded {
		n = min(n, len(k.checkpoints[id]))
	}
	return n
}

// check requires that the file has exactly the server's state at its checkpoint, and is of the first list.
func (k *killed) check(x *site, what string) {
	x.t.Helper()
	dumped := x.dumpByKind(what)
	for id, c := range collections(x.stored()) {
		what := what + ", " + id
		if !c.Synced {
			require.NotContains(x.t, k.first, id, "%s: was synced before", what)
			require.Equal(x.t, codeNotSynced, x.run("dump", id, "--config", x.config).Code, what)
			continue
		}
		if _, ok := k.first[id]; !ok {
			k.first[id] = c
			k.checkpoints[id] = make(map[string]bool)
		}
		k.checkpoints[id][c.ResourceVersion] = true
		require.Equal(x.t, k.first[id].LastList, c.LastList, "%s: it was listed again", what)
		k.server.truth.requireState(what, id, c.ResourceVersion, 0, dumped[c.Kind])
	}
}

// caughtUp returns an empty text if at least n collections are caught up, else what is missing.
func caughtUp(s *localapi.Status, n int) string {
	for _, c := range s.Collections {
		if c.CaughtUp {
			n--
		}
	}
	if n > 0 {
		return fmt.Sprintf("%d more have to be caught up", n)
	}
	return ""
}

// dumpByKind dumps the readable content of the file, by the kind of the objects.
func (x *site) dumpByKind(what string, from ...string) map[string]content {
	x.t.Helper()
	r := x.run(append([]string{"dump", "-o", "ndjson", "--config", x.config}, from...)...)
	if r.Code != codeNotSynced {
		require.Zero(x.t, r.Code, "%s: dump: %s", what, r.Stderr)
	}
	kinds := make(map[string]content)
	for line := range bytes.Lines(r.Stdout) {
		o := decodeObject(x.t, line)
		kind := fmt.Sprint(o["kind"])
		if kinds[kind] == nil {
			kinds[kind] = content{}
		}
		kinds[kind].add(x.t, o)
	}
	return kinds
}

// sleep waits for a random moment to come. The moment is part of the test, it is no
// synchronisation.
func sleep(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}
