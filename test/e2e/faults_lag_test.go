package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// lagTries is how often an agent asks a lagging server: enough to mistake it for a restored
// cluster.
const lagTries = 4

// lagging is another apiserver of the same etcd.
type lagging struct {
	*controlplane.ControlPlane
	etcd *slowEtcd
}

func (f *faults) startLagging(t *testing.T) *lagging {
	t.Helper()
	etcd := newSlowEtcd(t, f.cp.EtcdURL())
	other, err := controlplane.Start(t.Context(), controlplane.Options{EtcdURL: etcd.url, Log: t.Output()})
	require.NoError(t, err)
	// The first request for a custom resource starts its cache.
	client := harness.Dynamic(t, other.RESTConfig(controlplane.Admin))
	widgets := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
	poll(t, "its cache of widgets is there", nil, func(ctx context.Context) (bool, error) {
		w, err := widgets.Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		defer w.Stop()
		_, there := <-w.ResultChan()
		return there, nil
	})
	return &lagging{other, etcd}
}

// end moves the agent back to the server that it is to follow.
func (o *lagging) end(t *testing.T, f *faults) {
	t.Helper()
	f.moveTo(t, f.cp)
	o.etcd.goOn()
	require.NoError(t, o.Stop())
}

// moveTo moves the agent to another server.
func (f *faults) moveTo(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	f.g.lead(t, cp)
	f.g.Down()
	f.g.Up()
}

// changer returns a changer that leaves the objects of other faults alone. They are the newest ones, and
// if all of them changed and etcd were compacted, nothing would be left to recognise the server's
// history by.
func (f *faults) changer(t *testing.T) *changer {
	t.Helper()
	d := newChanger(t, f.cp)
	d.left = slices.DeleteFunc(d.left, func(name string) bool { return strings.Contains(name, "-round-") })
	return d
}

// aside returns a changer that leaves alone the object that a fault's one change uses.
func (f *faults) aside(t *testing.T) *changer {
	t.Helper()
	d := f.changer(t)
	d.left = d.left[5:]
	return d
}

// goOn makes some more changes.
func (f *faults) goOn(t *testing.T, d *changer) {
	t.Helper()
	at := strconv.FormatUint(f.random.Uint64(), 36)
	d.modify(d.next(), at)
	d.delete(d.next())
	d.create("goes-on-round-" + at)
	f.touchWidgets(t)
}

// showsLag reports whether a server that lags says so when it is asked for no less than a resourceVersion. Before 1.31
// the answer came from etcd. A watch from there is silent until the server has caught up, so that nothing is lost.
func showsLag(t *testing.T, cp *controlplane.ControlPlane) bool {
	t.Helper()
	return minorVersion(t, cp) >= 31
}

// farBehind moves the agent to an apiserver that gets no events until the agent has asked some
// times. An agent ahead of it waits.
func farBehind(t *testing.T, f *faults, change func()) {
	if !showsLag(t, f.cp) {
		change()
		return
	}
	other, aside := f.startLagging(t), f.aside(t)
	defer other.end(t, f)
	other.etcd.hold()
	change()
	f.touchWidgets(t)
	f.a.requireServers(f.cp, faultIDs...)
	var tries atomic.Int64
	f.g.answer(func(r *http.Request) int {
		if r.URL.Path == "/api/v1/configmaps" && r.URL.Query().Get("resourceVersionMatch") == "NotOlderThan" {
			tries.Add(1)
		}
		return 0
	})
	f.moveTo(t, other.ControlPlane)
	f.a.await("the agent asks again and again", func(s *localapi.Status) string {
		c := collections(s)["configmaps"]
		require.Zero(t, c.Lists, "listed for %s", c.ListReason)
		if n := tries.Load(); n < lagTries {
			return fmt.Sprintf("%d times so far, phase %s, %s", n, c.Phase, c.Problem)
		}
		return ""
	})
	f.g.answer(nil)
	f.goOn(t, aside)
	other.etcd.goOn()
	f.a.requireServers(f.cp, faultIDs...) // as read from the other one
}

// takingTurns moves the agent to an apiserver that lags, and back, while changes continue; the
// agent gets answers from both.
func takingTurns(t *testing.T, f *faults, change func()) {
	other, aside := f.startLagging(t), f.aside(t)
	defer other.end(t, f)

	// A watch from a resourceVersion that the server has not reached sends nothing until it has.
	other.etcd.hold()
	change()
	f.touchWidgets(t)
	f.a.requireServers(f.cp, faultIDs...)
	f.g.leadWatches(t, other.ControlPlane)
	f.g.Down()
	f.g.Up()
	f.a.awaitCaughtUp(anywhere(faultIDs...))
	f.goOn(t, aside)
	other.etcd.goOn()
	f.a.requireServers(f.cp, faultIDs...)

	// Away from it, while the agent has less than there is.
	other.etcd.hold()
	f.goOn(t, aside)
	f.moveTo(t, f.cp)
	f.a.requireServers(f.cp, faultIDs...)

	// To it, while the agent has more than it.
	f.moveTo(t, other.ControlPlane)
	if showsLag(t, f.cp) {
		f.a.awaitProblem("configmaps", "lags; waiting loses nothing")
	}
	f.goOn(t, aside)
	other.etcd.goOn()
	f.a.requireServers(f.cp, faultIDs...)
}
