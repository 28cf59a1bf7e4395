package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

var longRun = flag.Duration("faults.duration", 0, "how long TestFaultLongRun goes on; 0 for 3 minutes, or an hour with -faults.full")

// churnRate is the number of changes per second during the run.
const churnRate = 200

// TestFaultLongRun injects all faults of an agent and its server at random, several at a time,
// while objects change all the time. After each round the agent's objects must equal etcd's state
// at the checkpoint, in the history that the checkpoint belongs to; that state is read from etcd
// itself. A reader that polls the agent must see no collection go back, except from one history to
// the next.
func TestFaultLongRun(t *testing.T) {
	t.Parallel()
	r := startRun(t)
	lasts := *longRun
	if lasts == 0 {
		lasts = time.Duration(times(3, 60)) * time.Minute
	}
	for end, step := time.Now().Add(lasts), 1; time.Now().Before(end); step++ {
		var names []string
		for range 1 + r.random.IntN(3) {
			f := r.draw()
			names = append(names, f.name)
			r.done[f.name]++
			f.do(r)
			sleep(t, time.Duration(r.random.IntN(1500))*time.Millisecond)
		}
		started := time.Now()
		r.settle(fmt.Sprintf("step %d, after %q", step, names))
		t.Logf("step %d: %q, settled after %s", step, names, time.Since(started).Round(time.Second/10))
	}
	r.a.stop()
	r.compareFile("in the end")
	r.pause()
	r.x.must("check")
	for _, name := range slices.Sorted(maps.Keys(r.done)) {
		t.Logf("%4d × %s", r.done[name], name)
	}
	t.Logf("%d histories, %d states compared, %d reads, went back %d times", r.truth.current()+1, r.compared, r.reader.reads(), r.reader.wentBack())
	lists, _ := r.g.begun()
	t.Logf("counted: %d changes, %d kills, %d lists", r.truth.length(), r.done["agent killed"]+r.done["apiserver killed"], lists)
}

// anyFaults is the environment of a long run.
type anyFaults struct {
	*faults
	t        *testing.T
	settings settings
	truth    *truth
	reader   *reader
	history  map[string]int // the newest history that each collection is known to have reached
	saves    []save
	done     map[string]int
	compared int

	stopChurn func()
}

// save is a backup that etcd can be restored from.
type save struct {
	dir string
	at  int64 // it has everything up to this revision, and perhaps more
}

func startRun(t *testing.T) *anyFaults {
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 120, Pods: 60, Widgets: 60, Namespaces: 4}))
	g := newGateway(t, cp)
	random := random(t)
	s := settings{kubeconfig: g.Kubeconfig, more: anyKeys(random), resources: "- resource: configmaps\n- resource: pods\n- resource: widgets.example.com"}
	x := newSite(t, s)
	x.writeKeys()
	x.env = []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=3", "HTTP2_PING_TIMEOUT_SECONDS=2"}
	r := &anyFaults{
		faults: &faults{x: x, cp: cp, g: g, random: random}, t: t, settings: s,
		truth: recordTruth(t, cp), history: make(map[string]int), done: make(map[string]int),
	}
	r.a = x.start()
	r.reader = x.read()
	r.churn()
	r.settle("start")
	return r
}

// churn starts the changes.
func (r *anyFaults) churn() {
	r.stopChurn = beginChurn(r.t, r.cp.RESTConfig(controlplane.Admin), objects.ChurnOptions{Rate: churnRate, Seed: r.random.Int64()})
}

// stop ends the agent gracefully. It waits until the agent handles signals: in the first moments of
// a process a signal kills it.
func (r *anyFaults) stop() {
	r.a.await("answers", func(*localapi.Status) string { return "" })
	r.a.stop()
}

// runFault is one fault. It leaves everything running, but the agent may not have caught up.
type runFault struct {
	name   string
	weight int
	do     func(*anyFaults)
}

var runFaults = []runFault{
	{"agent killed", 6, func(r *anyFaults) {
		r.a.kill()
		r.compareFile("killed")
		r.a = r.x.start()
	}},
	{"agent stopped", 2, func(r *anyFaults) {
		r.stop()
		r.compareFile("stopped")
		r.a = r.x.start()
	}},
	{"agent stopped, file compacted", 1, func(r *anyFaults) {
		r.stop()
		r.x.must("compact")
		r.compareFile("compacted")
		r.a = r.x.start()
	}},
	{"agent stopped, another key", 2, func(r *anyFaults) {
		r.stop()
		r.compareFile("stopped")
		r.settings.more = anyKeys(r.random)
		r.x.configure(r.settings)
		r.a = r.x.start()
	}},
	{"snapshot", 2, func(r *anyFaults) { r.x.must("snapshot", "create") }},
	{"apiserver killed", 1, func(r *anyFaults) {
		require.NoError(r.t, r.cp.KillAPIServer(r.t.Context()))
		require.NoError(r.t, r.cp.StartAPIServer(r.t.Context()))
	}},
	{"apiserver restarted", 1, func(r *anyFaults) {
		if err := r.cp.StopAPIServer(r.t.Context()); err != nil {
			r.t.Log(err) // it timed out and was killed
		}
		require.NoError(r.t, r.cp.StartAPIServer(r.t.Context()))
	}},
	{"etcd compacted", 2, func(r *anyFaults) {
		r.truth.await(r.truth.revision()) // or the compaction might be faster
		require.NoError(r.t, r.cp.CompactEtcd(r.t.Context()))
	}},
	{"etcd saved", 3, (*anyFaults).save},
	{"etcd restored", 3, (*anyFaults).restore},
	{"network cut", 3, func(r *anyFaults) { r.g.Down(); r.wait(2000); r.g.Up() }},
	{"no answer", 1, func(r *anyFaults) { r.g.Hang(); r.wait(3000); r.g.Up() }},
	{"half-open connections", 2, func(r *anyFaults) { r.g.Lose() }},
	{"refusals", 2, func(r *anyFaults) {
		codes := []int{0, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}
		choices := rand.New(rand.NewPCG(r.random.Uint64(), 0)) //nolint:gosec // choices of a test
		r.g.answer(func(*http.Request) int { return codes[choices.IntN(len(codes))] })
		r.g.Down()
		r.g.Up()
		r.wait(4000)
		r.g.answer(nil)
	}},
	{"restored while a 410 is being answered", 1, func(r *anyFaults) {
		if len(r.saves) == 0 {
			r.save()
			r.wait(1000)
		}
		// A watch ends with 410, and no list succeeds before etcd is restored.
		r.g.answer(func(q *http.Request) int {
			switch {
			case q.URL.Query().Has("watch"):
				return http.StatusGone
			case q.URL.Query().Get("limit") == "500":
				return http.StatusServiceUnavailable
			}
			return 0
		})
		r.g.Down()
		r.g.Up()
		poll(r.t, "lists are refused", nil, func(context.Context) (bool, error) { return r.g.answered() >= 4, nil })
		r.restore()
		r.wait(3000) // long enough, or not, for it to pass the checkpoint
		r.g.answer(nil)
	}},
}

// draw picks a fault at random.
func (r *anyFaults) draw() runFault {
	sum := 0
	for _, f := range runFaults {
		sum += f.weight
	}
	n := r.random.IntN(sum)
	for _, f := range runFaults {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("unreachable")
}

// wait sleeps for a random time.
func (r *anyFaults) wait(ms int) { sleep(r.t, time.Duration(r.random.IntN(ms))*time.Millisecond) }

// pause stops the churn.
func (r *anyFaults) pause() { r.stopChurn() }

// save makes a backup of etcd during the churn.
func (r *anyFaults) save() {
	at := r.truth.revision()
	dir := filepath.Join(r.t.TempDir(), "etcd")
	require.NoError(r.t, r.cp.SaveEtcd(r.t.Context(), dir))
	r.saves = append(r.saves, save{dir, at})
}

// restore restores etcd from the newest save or the one before. It drops the later saves, which
// belong to a history that is gone.
func (r *anyFaults) restore() {
	if len(r.saves) == 0 {
		r.save()
		r.wait(3000)
	}
	i := len(r.saves) - 1 - r.random.IntN(min(2, len(r.saves)))
	s := r.saves[i]
	r.saves = r.saves[:i+1]
	// Of a write during etcd's shutdown it would be unknown whether it took place.
	r.pause()
	r.truth.end()
	// A graceful shutdown takes long with this many connections.
	require.NoError(r.t, r.cp.KillAPIServer(r.t.Context()))
	require.NoError(r.t, r.cp.RestoreEtcd(r.t.Context(), s.dir))
	r.truth.fork(s.at)
	r.reader.restored()
	r.churn()
}

// settle waits until the agent has caught up, and compares its objects through a snapshot, which is
// of one moment. It repeats that until the objects are of the current history: an agent whose
// connections are half-open when etcd is restored learns of it after some seconds, and its
// checkpoint may be above etcd's revision until then.
func (r *anyFaults) settle(what string) {
	r.t.Helper()
	at := strconv.FormatInt(r.truth.revision(), 10)
	want := make(map[string]string)
	for _, id := range recorded {
		want[id] = at
	}
	var missing string
	poll(r.t, what+": the objects are of the current history", &missing, func(context.Context) (bool, error) {
		r.a.awaitCaughtUp(want)
		name, _, ok := bytes.Cut(r.x.must("snapshot", "create"), []byte(": "))
		require.True(r.t, ok)
		r.compare(what, "--from", string(name))
		missing = ""
		for _, id := range recorded {
			if r.history[id] != r.truth.current() {
				missing = fmt.Sprintf("%s is of history %d of %d", id, r.history[id], r.truth.current())
			}
		}
		return missing == "", nil
	})
	r.reader.check()
}

// compareFile compares the content of the file after the agent's exit. No other agent may start
// before that.
func (r *anyFaults) compareFile(what string) {
	r.t.Helper()
	floor := r.compare(what)
	r.reader.ended(floor)
}

// compare compares the stored objects with the truth, and returns the checkpoints.
func (r *anyFaults) compare(what string, from ...string) map[string]string {
	r.t.Helper()
	dumped := r.x.dumpByKind(what, from...)
	checkpoints := make(map[string]string)
	for id, c := range collections(r.x.stored(from...)) {
		if !c.Synced {
			require.Zero(r.t, r.compared, "%s: %s was synced before", what, id)
			continue
		}
		r.history[id] = r.truth.requireState(what, id, c.ResourceVersion, r.history[id], dumped[c.Kind])
		checkpoints[id] = c.ResourceVersion
		r.compared++
	}
	return checkpoints
}

// reader polls the checkpoints of an agent's collections all the time.
type reader struct {
	t *testing.T

	mu       sync.Mutex
	seen     map[string]localapi.Collection
	pid      int
	floor    map[string]string // checkpoints of the file when the running agent started
	restores int               // of etcd
	back     map[string]int    // how often each collection went back to another history
	read     int
	failure  error
}

// read starts a reader, which ends with the test.
func (x *site) read() *reader {
	r := &reader{t: x.t, seen: make(map[string]localapi.Collection), back: make(map[string]int)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	client := localapi.NewClient(x.socket)
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if s, err := client.Status(ctx); err == nil && s.Agent != nil {
				r.note(s)
			}
		}, lookEvery)
	}()
	x.t.Cleanup(func() { cancel(); <-done })
	return r
}

// note checks one answer against those before.
func (r *reader) note(s *localapi.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read++
	another := r.pid != s.Agent.PID
	r.pid = s.Agent.PID
	for id, c := range collections(s) {
		was, known := r.seen[id]
		switch {
		case !known:
			if !c.Synced {
				continue
			}
		case !c.Synced:
			r.fail("%s was synced", id)
		case another:
			// What the previous process had read and not flushed is lost.
			if behind(c.ResourceVersion, r.floor[id]) {
				r.fail("%s begins at %s, its file was at %s", id, c.ResourceVersion, r.floor[id])
			}
		case behind(c.ResourceVersion, was.ResourceVersion):
			if c.LastList.Equal(was.LastList) || c.ListReason != "rv-ahead" {
				r.fail("%s went back from %s to %s; its newest list is for %s at %s, and was for %s at %s",
					id, was.ResourceVersion, c.ResourceVersion, c.ListReason, c.LastList, was.ListReason, was.LastList)
			}
			if r.back[id]++; r.back[id] > r.restores {
				r.fail("%s went back %d times, and etcd was restored %d times", id, r.back[id], r.restores)
			}
		}
		r.seen[id] = c
	}
}

func (r *reader) fail(format string, args ...any) {
	r.failure = errors.Join(r.failure, fmt.Errorf(format, args...))
}

func behind(rv, of string) bool {
	cmp, ok := object.CompareRV(rv, of)
	return ok && cmp < 0
}

// ended sets the checkpoints at which an agent has left its file.
func (r *reader) ended(at map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.floor = at
}

// restored notes a restore of etcd.
func (r *reader) restored() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restores++
}

func (r *reader) check() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NoError(r.t, r.failure)
}

func (r *reader) reads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}

func (r *reader) wentBack() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, times := range r.back {
		n += times
	}
	return n
}
