package kubeapi

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// dayObjects is how many objects of each resource a day begins with.
const dayObjects = 100

// TestFleetDay has spokes that are away while 30 % of the objects change, and come back when the
// kube-apiserver has nothing of it in its window and the hubs have only their files, as after a day: they
// don't list. After that the hubs' histories have less than their time away, and each lists each collection
// once, at a hub.
func TestFleetDay(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(rand.Uint64(), 0)) //nolint:gosec // choices of a test
	f := newFleet(t, random, fleetOptions{spokes: 2})
	require.NoError(t, objects.Seed(t.Context(), f.on.ControlPlane, objects.SeedOptions{ConfigMaps: dayObjects, Pods: dayObjects}))
	f.awaitInStep("seeded")

	f.away(f.loseWindow)
	f.check(nil)
	for _, s := range f.spokes {
		require.Len(t, s.lists(), len(s.resources), "%s listed when it came back", s.name)
	}

	listed := 0
	f.away(func() {
		listed = f.hubLists()
		for _, h := range f.hubs {
			h.retention = "1m"
			h.configure()
		}
		f.restartHubs()
		f.pass(time.Minute + 2*time.Second) // longer than the retention, which counts while a hub runs
		f.restartHubs()                     // the histories are trimmed when they stop
	})
	f.check(map[string]int{"expired": len(f.spokes) * len(f.spokes[0].resources)})
	require.Equal(t, listed, f.hubLists(), "a list of a hub leaves a gap, and then that is why the spokes list")
	for _, s := range f.spokes {
		expired := map[string]int{}
		for _, l := range s.lists() {
			if l.reason == "expired" {
				expired[l.collection]++
			}
		}
		require.Len(t, expired, len(s.resources), s.name)
		for id, n := range expired {
			require.Equal(t, 1, n, "%s: lists of %s after the horizon", s.name, id)
		}
	}
}

// hubLists returns how many lists the hubs have made.
func (f *fleet) hubLists() (n int) {
	for _, h := range f.hubs {
		n += len(h.lists())
	}
	return n
}

// away changes 30 % of the objects while the spokes are stopped, does what else happens until they come
// back, and waits until they have caught up.
func (f *fleet) away(while func()) {
	f.t.Helper()
	for _, s := range f.spokes {
		s.observe(true)
		s.stop()
		s.stopped(false)
	}
	for _, of := range []schema.GroupVersionResource{configMaps, pods} {
		f.change(of)
	}
	for _, h := range f.hubs {
		h.awaitCaughtUp()
	}
	while()
	for _, s := range f.spokes {
		s.start()
	}
	f.awaitInStep("after a time away")
}

// change changes 10 % of the objects of a resource, deletes as many, and creates as many.
func (f *fleet) change(of schema.GroupVersionResource) {
	f.t.Helper()
	const n = dayObjects / 10
	keys, err := objects.Touch(f.t.Context(), f.on.RESTConfig(controlplane.Admin), of.Resource, n)
	require.NoError(f.t, err)
	require.Len(f.t, keys, n)
	all := f.on.read(f.t, of)
	now := int64(0)
	for _, o := range all[len(all)-n:] {
		err := f.on.client.Resource(of).Namespace(o.GetNamespace()).Delete(f.t.Context(), o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
		require.NoError(f.t, err)
	}
	c := &churn{client: f.on.client, random: f.random}
	for i := range n {
		c.create(f.t.Context(), f.on.client.Resource(of).Namespace("left"), of, fmt.Sprintf("new-%d-%d", len(f.truth.complete(f.t, f.on.ControlPlane)[of.Resource]), i))
	}
}
