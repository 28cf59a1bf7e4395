package e2e

import (
	"context"
	"sync"
	"testing"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	"github.com/snapcache/snapcache/test/e2e/faultfs"
)

// quiet is the control plane shared by the tests that change nothing on it.
var quiet struct {
	once sync.Once
	cp   *controlplane.ControlPlane
	err  error
}

func TestMain(m *testing.M) {
	if faultfs.Serve() || servePeak() {
		return
	}
	harness.Run(m, func(string) (func() error, error) {
		return func() error {
			if quiet.cp == nil {
				return nil
			}
			return quiet.cp.Stop()
		}, nil
	})
}

// quietControlPlane returns the shared control plane. Objects on it must not be changed.
func quietControlPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	quiet.once.Do(func() {
		ctx := context.Background() // it outlives this test
		quiet.cp, quiet.err = controlplane.Start(ctx, controlplane.Options{})
		if quiet.err == nil {
			quiet.err = objects.Seed(ctx, quiet.cp, smallSeed)
		}
	})
	if quiet.err != nil {
		t.Fatal(quiet.err)
	}
	return quiet.cp
}

// smallSeed is a few objects of each kind.
var smallSeed = objects.SeedOptions{
	Pods: 80, ConfigMaps: 120, Secrets: 30, Services: 30, EndpointSlices: 30, Deployments: 30, Nodes: 8, Widgets: 60,
	Namespaces: 8,
}
