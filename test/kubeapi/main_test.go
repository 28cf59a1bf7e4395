package kubeapi

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/util/consistencydetector"

	"github.com/snapcache/snapcache/test/controlplane"
)

// patience is the time that a test waits for a condition, far longer than it takes; pollEvery is
// the time between two checks.
const (
	patience  = time.Minute
	pollEvery = 20 * time.Millisecond
)

var (
	seed     = flag.Uint64("seed", 1, "the seed of the generated requests")
	reported = flag.Int("reported", 15, "how many differences are reported of each kind of requests")

	shared *cluster // read-only for tests, once its world is made
	binary string   // path of the program under test
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubeapi:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "snapcache-kubeapi-") // short: it has a socket
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := build(dir); err != nil {
		return 0, err
	}
	consistencydetector.SetDataConsistencyDetectionForWatchListEnabledForTest(true)
	on, err := startPlane(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, on.Stop()) }()
	if shared, err = newCluster(ctx, on, dir); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, shared.stop()) }()
	return m.Run(), nil
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
