package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
)

// PollEvery is the interval of polls.
const PollEvery = 20 * time.Millisecond

// OverlayEnv is the environment variable with the argument of "go build -overlay" for the program under test: another
// program than the source tree's.
const OverlayEnv = "SNAPCACHE_TEST_OVERLAY"

// Snapcache is the path of the program under test, after [Run] has built it.
var Snapcache string

// Run builds the program, and the control plane so that no test is charged for the time, runs the tests and exits.
// start prepares the fixtures that tests share, in a directory that is removed, and returns a function that ends them.
func Run(m *testing.M, start func(dir string) (stop func() error, err error)) {
	code, err := run(m, start)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, start func(string) (func() error, error)) (code int, err error) {
	dir, err := os.MkdirTemp("", "snapcache-tests-") // short: there may be sockets in it
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if Snapcache, err = build(dir); err != nil {
		return 0, err
	}
	if _, err := controlplane.Build(context.Background(), os.Stderr); err != nil {
		return 0, err
	}
	stop, err := start(dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return m.Run(), nil
}

// build builds the program as it is shipped, without cgo and the race detector, and returns its path.
func build(dir string) (string, error) {
	root, err := controlplane.Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "snapcache")
	cmd := exec.Command("go", "build", "-overlay", os.Getenv(OverlayEnv), "-o", path, "./cmd/snapcache")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build snapcache: %w\n%s", err, out)
	}
	return path, nil
}

// StartControlPlane starts a control plane, or uses the server of [controlplane.OwnEnv].
func StartControlPlane(ctx context.Context, o controlplane.Options) (*controlplane.ControlPlane, error) {
	o.Own = os.Getenv(controlplane.OwnEnv)
	return controlplane.Start(ctx, o)
}

// ControlPlane starts a control plane for one test like [StartControlPlane].
func ControlPlane(t *testing.T, o controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	o.Log = t.Output()
	cp, err := StartControlPlane(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cp.Stop()) })
	return cp
}

// FreeAddress returns an address on loopback that no other test has until this one ends.
func FreeAddress(t *testing.T) string {
	t.Helper()
	address, release, err := controlplane.ReserveAddress()
	require.NoError(t, err)
	t.Cleanup(release)
	return address
}
