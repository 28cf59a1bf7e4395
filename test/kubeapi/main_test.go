package kubeapi

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"k8s.io/client-go/util/consistencydetector"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// patience is the time that a test waits for a condition, far longer than it takes; pollEvery is
// the time between two checks.
const (
	patience  = time.Minute
	pollEvery = harness.PollEvery
)

var (
	seed     = flag.Uint64("seed", 1, "the seed of the generated requests")
	reported = flag.Int("reported", 15, "how many differences are reported of each kind of requests")

	shared *cluster // read-only for tests, once its objects are made
)

func TestMain(m *testing.M) {
	flag.Parse()
	harness.Run(m, func(dir string) (func() error, error) {
		ctx := context.Background()
		consistencydetector.SetDataConsistencyDetectionForWatchListEnabledForTest(true)
		on, err := startPlane(ctx)
		if err != nil {
			return nil, err
		}
		if shared, err = newCluster(ctx, on, dir); err != nil {
			return nil, errors.Join(err, on.Stop())
		}
		return func() error { return errors.Join(shared.stop(), on.Stop()) }, nil
	})
}
