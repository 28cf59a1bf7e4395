package bolt_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/storetest"
)

// dataset makes the objects of a benchmark. The result of make depends only on its arguments.
type dataset struct {
	name  string
	info  store.Info
	count int
	make  func(i, version int) []byte // as the server sends it
	prune bool
}

var (
	pods = dataset{"pods", benchInfo("pods", "Pod", object.NewPrune(object.ManagedFields).ID()), 20_000, storetest.Pod, true}
	many = dataset{"small", benchInfo("leases", "Lease", ""), 200_000, storetest.Lease, false}
)

func benchInfo(resource, kind, transform string) store.Info {
	return store.Info{ID: resource, Version: "v1", Resource: resource, Kind: kind, Namespaced: true, Transform: transform}
}

// object returns object number i as the store gets it, and the length of its JSON as the server
// sends it.
func (d dataset) object(tb testing.TB, i, version int) (*object.Object, int) {
	raw := d.make(i, version)
	n := len(raw)
	if d.prune {
		pruned, err := object.NewPrune(object.ManagedFields).Append(nil, raw)
		require.NoError(tb, err)
		raw = slices.Clip(pruned)
	}
	o, err := object.FromValid(raw)
	require.NoError(tb, err)
	return o, n
}

// listOrder returns the numbers of the objects in the order of their keys, as in a server's list.
func (d dataset) listOrder(tb testing.TB) []int {
	keys := make(map[string]int, d.count)
	for i := range d.count {
		o, _ := d.object(tb, i, 1)
		keys[o.Key()] = i
	}
	order := make([]int, 0, d.count)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		order = append(order, keys[key])
	}
	return order
}

// change returns the change that brings object number i to a version.
func (d dataset) change(tb testing.TB, i, version int) store.Change {
	o, _ := d.object(tb, i, version)
	return store.Change{Key: o.Key(), Object: o}
}

func checkpointAt(rv string, at time.Time) store.Checkpoint {
	return store.Checkpoint{RV: rv, Cluster: "3f2b8a52-7c0e-4d9b-9a55-1f6a0f1f2f10", LastEvent: at, LastList: at, ListReason: "initial"}
}

// TestBenchPods checks the properties of the benchmarks' pods: about 11 KB, half of it
// managedFields, different from each other.
func TestBenchPods(t *testing.T) {
	seen := map[string]bool{}
	var sent, kept int
	const n = 200
	for i := range n {
		raw := storetest.Pod(i, 1)
		require.True(t, json.Valid(raw))
		require.Equal(t, string(raw), string(storetest.Pod(i, 1)), "deterministic")
		o, size := pods.object(t, i, 1)
		sent, kept = sent+size, kept+o.Size()
		require.False(t, seen[o.Key()])
		seen[o.Key()] = true
	}
	require.InDelta(t, 11_000, sent/n, 1_500)
	require.InDelta(t, 0.5, float64(kept)/float64(sent), 0.12)
	o, _ := many.object(t, 7, 1)
	require.InDelta(t, 400, o.Size(), 60)
}

func newSource(kind string, i int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(len(kind)), uint64(i)))
}
