package kubeapi

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// failoverPatience is longer than it takes until a spoke uses its fallback and asks it: the hubs have to be
// gone for half a minute, and by then it waits up to a minute between two requests.
const failoverPatience = 3 * time.Minute

// TestFleetFallback has spokes whose hubs are gone for longer than the failover waits: they continue at
// the kube-apiserver, and later at the hubs, which are then behind them, without a list. One of them may
// read a single namespace, and gets nothing else.
func TestFleetFallback(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(rand.Uint64(), 0)) //nolint:gosec // choices of a test
	f := newFleet(t, random, fleetOptions{spokes: 3, limited: map[int]string{2: "left"}})
	f.churn()
	for _, h := range f.hubs {
		h.kill()
	}
	for _, s := range f.spokes {
		s.awaitServer("https://" + s.direct.Address)
	}
	f.pause()
	f.awaitInStep("without hubs")
	for _, s := range f.spokes {
		require.Equal(t, 1.0, s.fallback(), s.name)
	}

	for _, h := range f.hubs { // they are as they were before
		h.link.Down()
		h.start()
	}
	for _, s := range f.spokes {
		s.stop()
		s.stopped(false)
		s.start()
		s.awaitServer("https://" + s.link.Address)
		require.Zero(t, s.fallback(), s.name)
	}
	for range 20 {
		for _, s := range f.spokes {
			s.observe(true) // newer than what the hubs have
			require.False(t, s.caughtUp(s.resources[0]), s.name)
		}
		f.pass(killMax)
	}
	f.churn()
	for _, h := range f.hubs {
		h.link.Up()
	}
	f.quiet("with the hubs again")

	stranger := f.newSpoke(3, f.tokens[2], "")
	err := wait.PollUntilContextTimeout(t.Context(), pollEvery, patience, true, func(context.Context) (bool, error) {
		c := stranger.collection("configmaps")
		return c.ProblemKind == "forbidden", nil
	})
	require.NoError(t, err, "%+v", stranger.collection("configmaps"))
	require.Contains(t, stranger.collection("configmaps").Problem, "forbid")
	require.False(t, stranger.collection("configmaps").Synced)
	f.check(nil)
}

// TestFleetWindow has spokes that come back after the kube-apiserver's window is gone: they don't list,
// because the hubs have their files. When the definition of the custom resource has changed meanwhile, they
// list that one: they ask the hubs for it. A hub that has listed has a gap, which a spoke may be in.
func TestFleetWindow(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(rand.Uint64(), 0)) //nolint:gosec // choices of a test
	f := newFleet(t, random, fleetOptions{spokes: 2, custom: true})
	config := f.on.RESTConfig(controlplane.Admin)
	require.NoError(t, objects.Seed(t.Context(), f.on.ControlPlane, objects.SeedOptions{Widgets: 5}))
	f.awaitInStep("seeded")
	for _, s := range f.spokes {
		s.stop()
	}
	f.churn()
	_, err := objects.Touch(t.Context(), config, "widgets", 3)
	require.NoError(t, err)
	f.pass(5 * time.Second)
	f.loseWindow()
	f.quiet("with the window gone")
	f.check(nil)

	for _, s := range f.spokes {
		s.stop()
	}
	definitions := f.on.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	patch := `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/note","value":{"type":"string"}}]`
	_, err = definitions.Patch(t.Context(), objects.WidgetResource.GroupResource().String(), types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	f.restartHubs() // they list the widgets before a spoke does
	f.churn()       // or a hub that is behind by a bookmark makes a spoke wait for the next one
	f.pass(time.Second)
	f.quiet("with another schema")
	f.check(map[string]int{"schema-changed": len(f.spokes)})
	for _, s := range f.spokes {
		changed := slices.DeleteFunc(s.lists(), func(l listLine) bool { return l.reason != "schema-changed" })
		require.Len(t, changed, 1, s.name)
		require.Equal(t, objects.WidgetResource.GroupResource().String(), changed[0].collection, s.name)
	}
}

// loseWindow restarts the hubs, and the kube-apiserver after them, so that its window is gone.
func (f *fleet) loseWindow() {
	f.t.Helper()
	f.restartHubs()
	require.NoError(f.t, restartServer(f.t.Context(), f.on.ControlPlane, false))
}

// restartHubs restarts the hubs, so that they have only their files.
func (f *fleet) restartHubs() {
	f.t.Helper()
	for _, h := range f.hubs {
		h.stop()
		h.start()
	}
	for _, h := range f.hubs {
		h.awaitCaughtUp()
	}
}

// awaitServer waits until the spoke uses a server, and has caught up with it if the server can.
func (s *spoke) awaitServer(server string) {
	s.t.Helper()
	using := ""
	err := wait.PollUntilContextTimeout(s.t.Context(), pollEvery, failoverPatience, true, func(ctx context.Context) (bool, error) {
		if status, err := s.agent.status.Status(ctx); err == nil && status.Agent != nil {
			using = status.Agent.Server
		}
		return using == server, nil
	})
	require.NoError(s.t, err, "%s uses %s, not %s", s.name, using, server)
}

// collection returns the status of a collection.
func (s *spoke) collection(resource string) localapi.Collection {
	status, err := s.agent.status.Status(s.t.Context())
	if err != nil {
		return localapi.Collection{}
	}
	for _, c := range status.Collections {
		if c.Resource == resource {
			return c
		}
	}
	return localapi.Collection{}
}

// awaitCaughtUp waits until a hub watches all it caches.
func (h *hub) awaitCaughtUp() {
	h.t.Helper()
	missing := "no answer"
	err := wait.PollUntilContextTimeout(h.t.Context(), pollEvery, patience, true, func(ctx context.Context) (bool, error) {
		if status, err := h.agent.status.Status(ctx); err == nil {
			missing = behind(status, h.resources)
		}
		return missing == "", nil
	})
	require.NoError(h.t, err, missing)
}
