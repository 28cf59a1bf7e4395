package e2e

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// churnSlow is the rate of changes per second in tests that kill an agent between any two of them.
const churnSlow = 80

// churnStored changes the kinds that no controller of a real cluster changes.
var churnStored = objects.ChurnOptions{Rate: churnSlow, Kinds: []string{"configmaps", "widgets"}}

// beginChurn changes objects until stop is called, or the test ends.
func beginChurn(t *testing.T, config *rest.Config, o objects.ChurnOptions) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := objects.Churn(ctx, config, o)
		done <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("churn: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// churned is a control plane whose objects change all the time, and the history of the objects.
type churned struct {
	cp    *controlplane.ControlPlane
	truth *truth
	stop  func()
}

func newChurned(t *testing.T) *churned {
	t.Helper()
	x := &churned{cp: harness.ControlPlane(t, controlplane.Options{})}
	require.NoError(t, objects.Seed(t.Context(), x.cp, objects.SeedOptions{Pods: 40, ConfigMaps: 60, Widgets: 50, Namespaces: 4}))
	x.truth = recordTruth(t, x.cp)
	x.stop = beginChurn(t, x.cp.RESTConfig(controlplane.Admin), objects.ChurnOptions{Rate: churnSlow})
	return x
}

// settings returns the settings of an agent that caches everything that changes.
func (x *churned) settings(t *testing.T) settings {
	t.Helper()
	return settings{kubeconfig: harness.Kubeconfig(t, x.cp, controlplane.Admin), resources: `
- resource: configmaps
- resource: pods
- resource: widgets.v1.example.com
`}
}

// settle stops the changes, and compares the agent's objects with the server's.
func (x *churned) settle(t *testing.T, a *agent) {
	t.Helper()
	a.awaitCaughtUp(anywhere(recorded...))
	x.stop()
	touchAll(t, x.cp, recorded...)
	a.requireServers(x.cp, recorded...)
}
