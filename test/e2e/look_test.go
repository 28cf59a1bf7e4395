package e2e

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// lookEvery is the polling interval of a looker: short enough to notice a momentary state, and long
// enough not to be the load of the test.
const lookEvery = 50 * time.Millisecond

// looker is a client that polls an agent for its keys, and fails the test if one is missing that
// was on the server throughout.
type looker struct {
	stop   func()
	looked atomic.Int64
}

// look starts a looker for those configmaps that tests leave alone. It ends with the test at the
// latest. A request without an answer is no failure: the agent may be stopped.
func (x *site) look(there content) *looker {
	x.t.Helper()
	stays := make(map[string]bool)
	for key := range there {
		if ns, _, _ := strings.Cut(key, "/"); ns == objects.Namespace(1) || ns == objects.Namespace(3) {
			stays[key] = true
		}
	}
	if len(stays) == 0 {
		x.t.Fatal("nothing to look for")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l := &looker{stop: func() { cancel(); <-done }}
	client := localapi.NewClient(x.socket)
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			missing := len(stays)
			err := client.Keys(ctx, []string{"configmaps"}, localapi.KeyQuery{}, func(_ string, k localapi.Key) error {
				if stays[k.Key] {
					missing--
				}
				return nil
			})
			if err != nil {
				return
			}
			l.looked.Add(1)
			if missing != 0 {
				x.t.Errorf("%d of %d objects were missing that are on the server", missing, len(stays))
				cancel()
			}
		}, lookEvery)
	}()
	x.t.Cleanup(l.stop)
	return l
}
