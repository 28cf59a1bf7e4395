package e2e

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// recorded are the collections of which the truth is recorded.
var recorded = []string{"configmaps", "pods", "widgets.example.com"}

// truth is everything that etcd ever held of some collections, read from etcd directly, without the
// apiserver or any code of the product. If etcd is restored from a save, the history forks: a new
// history begins, equal to the old one up to the save.
type truth struct {
	t  *testing.T
	cp *controlplane.ControlPlane

	mu     sync.Mutex
	forks  []*fork
	cancel func()
}

// fork is the history from one restore to the next.
type fork struct {
	first     map[string]map[string]uint64 // collection, key, digest
	since     int64                        // revision of first
	events    []written
	inherited int   // how many of the events come from the previous history
	newest    int64 // revision up to which events are complete
	broken    error
}

// written is one change. Its digest is 0 for a deletion.
type written struct {
	rv              int64
	collection, key string
	digest          uint64
}

// recordTruth starts with the content of etcd, and follows it until the test ends.
func recordTruth(t *testing.T, cp *controlplane.ControlPlane) *truth {
	t.Helper()
	x := &truth{t: t, cp: cp}
	all, revision := harness.ReadEtcd(t, cp, recorded)
	f := &fork{first: make(map[string]map[string]uint64), since: revision, newest: revision}
	for _, id := range recorded {
		f.first[id] = make(map[string]uint64)
	}
	for _, w := range all {
		f.first[w.Resource][w.Key] = x.digest(w)
	}
	x.forks = []*fork{f}
	x.follow(f)
	return x
}

// follow records the events after f's newest revision.
func (x *truth) follow(f *fork) {
	x.cancel = harness.FollowEtcd(x.t, x.cp, f.newest, recorded, func(w harness.Written, err error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if err != nil {
			f.broken = err
			return
		}
		f.newest = w.RV
		switch {
		case w.Resource == "":
		case w.JSON == nil:
			f.events = append(f.events, written{rv: w.RV, collection: w.Resource, key: w.Key})
		default:
			f.events = append(f.events, written{w.RV, w.Resource, w.Key, x.digest(w)})
		}
	})
}

// await waits until everything up to a revision is recorded.
func (x *truth) await(rv int64) {
	x.t.Helper()
	poll(x.t, fmt.Sprintf("etcd's history is at %d", rv), nil, func(context.Context) (bool, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		f := x.forks[len(x.forks)-1]
		return f.newest >= rv, f.broken
	})
}

// end stops following, before etcd is restored. A write during the call may be lost from the truth.
func (x *truth) end() {
	x.t.Helper()
	x.await(x.revision())
	x.cancel()
}

// fork starts a history that equals the old one up to a revision.
func (x *truth) fork(rv int64) {
	x.t.Helper()
	x.mu.Lock()
	last := x.forks[len(x.forks)-1]
	f := &fork{first: last.first, since: last.since, newest: rv}
	for _, e := range last.events {
		if e.rv <= rv {
			f.events = append(f.events, e)
		}
	}
	f.inherited = len(f.events)
	x.forks = append(x.forks, f)
	x.mu.Unlock()
	x.follow(f)
}

// revision returns etcd's newest revision.
func (x *truth) revision() int64 {
	x.t.Helper()
	rev, err := x.cp.Revision(x.t.Context())
	require.NoError(x.t, err)
	return rev
}

// current returns the number of the current history.
func (x *truth) current() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.forks) - 1
}

// at returns the state of a collection in one history.
func (x *truth) at(fork int, id string, rv int64) map[string]uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.forks[fork]
	state := maps.Clone(f.first[id])
	for _, e := range f.events {
		switch {
		case e.rv > rv:
			return state
		case e.collection != id:
		case e.digest == 0:
			delete(state, e.key)
		default:
			state[e.key] = e.digest
		}
	}
	return state
}

// length returns the number of changes in all histories.
func (x *truth) length() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, f := range x.forks {
		n += len(f.events) - f.inherited
	}
	return n
}

// requireState compares the stored objects of a collection with the histories, starting with the
// one that it belonged to before, and returns the one that it belongs to now.
func (x *truth) requireState(what, id, rv string, from int, got content) int {
	x.t.Helper()
	n, err := strconv.ParseInt(rv, 10, 64)
	require.NoError(x.t, err, "%s: %s", what, id)
	have := make(map[string]uint64, len(got))
	for key, o := range got {
		have[key] = x.digestObject(o)
	}
	current := x.current()
	if x.newestOf(current) < n && from == current {
		x.await(n)
	}
	var report []string
	for i := current; i >= from; i-- {
		if i == current && x.newestOf(i) < n {
			continue // not there yet: it can only be an earlier one
		}
		want := x.at(i, id, n)
		if maps.Equal(want, have) {
			return i
		}
		var wrong []string
		for key := range want {
			if have[key] == 0 {
				wrong = append(wrong, key+" is missing")
			} else if have[key] != want[key] {
				wrong = append(wrong, key+" differs")
			}
		}
		for key := range have {
			if want[key] == 0 {
				wrong = append(wrong, key+" should not be there")
			}
		}
		slices.Sort(wrong)
		report = append(report, fmt.Sprintf("history %d has %d objects there, of which %d are otherwise: %v", i, len(want), len(wrong), wrong[:min(len(wrong), 8)]))
	}
	x.t.Fatalf("%s: %s at %s has %d objects, which no history from %d to %d knows:\n%s", what, id, rv, len(have), from, current, strings.Join(report, "\n"))
	return 0
}

func (x *truth) newestOf(fork int) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.forks[fork].newest
}

// digest returns the digest of an object as etcd holds it. Any goroutine may call it.
func (x *truth) digest(w harness.Written) uint64 {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(w.JSON, &u.Object); err != nil {
		x.t.Errorf("etcd's %s %s: %v", w.Resource, w.Key, err)
		return 1
	}
	u.SetResourceVersion(strconv.FormatInt(w.RV, 10))
	return x.digestObject(u.Object)
}

// digestObject returns the digest of an object, without managedFields.
func (x *truth) digestObject(o map[string]any) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(canonical(x.t, o)))
	return h.Sum64() | 1
}
