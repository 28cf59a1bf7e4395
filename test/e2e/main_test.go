package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	"github.com/snapcache/snapcache/test/e2e/faultfs"
)

// binary is the path of the program under test.
var binary string

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
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "snapcache-e2e-bin-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := build(dir); err != nil {
		return 0, err
	}
	// Built here, so that no test is charged for the time.
	if _, err := controlplane.Build(context.Background(), os.Stderr); err != nil {
		return 0, err
	}
	code = m.Run()
	if quiet.cp != nil {
		err = quiet.cp.Stop()
	}
	return code, err
}

// build builds the program as it is shipped: without cgo and the race detector.
func build(dir string) error {
	root, err := controlplane.Root()
	if err != nil {
		return err
	}
	binary = filepath.Join(dir, "snapcache")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/snapcache")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build snapcache: %w\n%s", err, out)
	}
	return nil
}

// newControlPlane starts a control plane for one test.
func newControlPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
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
