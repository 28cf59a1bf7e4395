package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

var faultIDs = []string{"configmaps", "widgets.example.com"}

// serverFault is a fault of a server, or of the network before it.
type serverFault struct {
	name string
	ours bool // it needs the server's keys, or a second server on its datastore
	// reasons maps each collection that is listed because of the fault to the list's reason. No
	// other list may be made.
	reasons map[string]string
	// do injects the fault, and returns when the agent can continue. It calls change to make the
	// changes that come with the fault.
	do func(t *testing.T, f *faults, change func())
}

// listed returns reasons for a list of each collection, all the same.
func listed(reason string) map[string]string {
	return map[string]string{"configmaps": reason, "widgets.example.com": reason}
}

// serverFaults are ordered so that each can follow the one before.
var serverFaults = []serverFault{
	{"connections cut", false, nil, func(_ *testing.T, f *faults, change func()) {
		f.g.Down()
		change()
		f.g.Up()
	}},
	{"half-open connections", false, nil, func(_ *testing.T, f *faults, change func()) {
		f.g.Lose()
		change()
	}},
	{"429 for every request", false, nil, func(t *testing.T, f *faults, change func()) {
		f.storm(t, change, func(*http.Request) int { return http.StatusTooManyRequests })
	}},
	{"500 and 429 for half of the requests", false, nil, func(t *testing.T, f *faults, change func()) {
		codes := []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, 0, 0, 0}
		refused := 0
		f.storm(t, change, func(r *http.Request) int {
			n := len(codes)
			if refused < enough() && r.URL.Query().Has("watch") {
				n -= 3 // a watch that is let through early ends the storm
			}
			code := codes[f.random.IntN(n)]
			if code != 0 {
				refused++
			}
			return code
		})
	}},
	{"token revoked, another one given", false, nil, func(t *testing.T, f *faults, change func()) {
		token := "another " + strconv.FormatUint(f.random.Uint64(), 36)
		f.g.accept(token)
		f.g.Down()
		f.g.Up()
		f.a.awaitProblem("configmaps", "credential")
		change()
		f.g.giveToken(t, token) // the agent reads the file every minute
	}},
	{"token expired, another one given", true, nil, tokenExpired},
	{"client certificate revoked, another one given", false, nil, func(t *testing.T, f *faults, change func()) {
		f.a.stop()
		f.g.writeKubeconfig(t, &clientcmdapi.AuthInfo{ClientCertificate: f.g.certFile, ClientKey: f.g.keyFile})
		f.g.acceptCertificate(t)()
		f.a = f.x.start()
		f.a.awaitCaughtUp(anywhere(faultIDs...))
		give := f.g.acceptCertificate(t)
		f.g.Down()
		f.g.Up()
		for _, id := range faultIDs {
			f.a.awaitProblem(id, "credential")
		}
		f.g.Down() // client-go reads the files for each connection, and otherwise every 5 minutes
		change()
		give()
		for _, id := range faultIDs {
			f.a.awaitProblem(id, "refused") // by then the copy of the files, kept for a second, has expired
		}
		f.g.Up()
		f.a.awaitCaughtUp(anywhere(faultIDs...))
		f.g.writeKubeconfig(t, &clientcmdapi.AuthInfo{TokenFile: f.g.tokenFile}) // for the next agent
	}},
	{"authority replaced", false, nil, func(t *testing.T, f *faults, change func()) {
		other := quietControlPlane(t)
		if f.replaced {
			other = f.cp
		}
		f.replaced = !f.replaced
		f.g.certify(t, other)
		f.g.Down()
		f.g.Up()
		f.a.awaitProblem("configmaps", "certificate")
		change()
		f.a.stop()
		f.g.trust(t, other)
		f.a = f.x.start()
	}},
	{"etcd compacted", false, nil, func(t *testing.T, f *faults, change func()) {
		f.g.Down()
		change()
		require.NoError(t, f.cp.CompactEtcd(t.Context()))
		f.g.Up()
		f.a.awaitCaughtUp(anywhere(faultIDs...))
		// And once more, while it watches.
		f.touchWidgets(t)
		require.NoError(t, f.cp.CompactEtcd(t.Context()))
	}},
	{"another apiserver that has lost etcd", true, nil, func(t *testing.T, f *faults, change func()) {
		etcd, err := url.Parse(f.cp.EtcdURL())
		require.NoError(t, err)
		network := harness.NewNetwork(t, etcd.Host)
		other, err := controlplane.Start(t.Context(), controlplane.Options{EtcdURL: "http://" + network.Address, Log: t.Output()})
		require.NoError(t, err)
		defer func() { require.NoError(t, other.Stop()) }()
		network.Hang() // from here on it lags
		change()
		f.g.lead(t, other)
		f.g.Down()
		f.g.Up()
		f.a.awaitNotCaughtUp("configmaps")
		f.g.lead(t, f.cp)
		f.g.Down()
		f.g.Up()
	}},
	{"another apiserver that lags far behind", true, nil, farBehind},
	{"another apiserver that lags, in turn", true, nil, takingTurns},
	{"namespace recreated, unseen", false, nil, func(t *testing.T, f *faults, change func()) {
		f.g.Down()
		f.remakeNamespace(t, objects.Namespace(2))
		change()
		f.g.Up()
	}},
	{"namespace recreated, watched", false, nil, func(t *testing.T, f *faults, change func()) {
		f.remakeNamespace(t, objects.Namespace(2))
		change()
	}},
	{"definition deleted, changed and recreated", false, map[string]string{"widgets.example.com": "schema-changed"}, func(t *testing.T, f *faults, change func()) {
		f.remakeWidgets(t)
		change()
	}},
	{"apiserver killed and restarted", false, listed("expired"), func(t *testing.T, f *faults, change func()) {
		f.g.Down()
		change()
		f.touchWidgets(t)
		require.NoError(t, f.cp.KillAPIServer(t.Context()))
		require.NoError(t, f.cp.StartAPIServer(t.Context()))
		f.g.Up()
	}},
	{"datastore killed and restarted", false, nil, func(t *testing.T, f *faults, change func()) {
		change() // what a kill right after must not lose
		require.NoError(t, f.cp.KillEtcd(t.Context()))
		require.NoError(t, f.cp.StartEtcd(t.Context()))
		poll(t, "the server writes again", nil, func(ctx context.Context) (bool, error) {
			_, err := objects.Touch(ctx, f.cp.RESTConfig(controlplane.Admin), "widgets", 1)
			return err == nil, nil
		})
	}},
	{"etcd restored", false, listed("rv-ahead"), func(t *testing.T, f *faults, change func()) {
		saved := filepath.Join(t.TempDir(), "etcd")
		require.NoError(t, f.cp.SaveEtcd(t.Context(), saved))
		change()
		// Far enough to stay ahead of the apiserver's own writes at its start.
		goPast(t, f.cp, rvPlus(t, f.cp, 200), "lost-"+strconv.FormatUint(f.random.Uint64(), 36))
		f.touchWidgets(t)
		f.a.requireServers(f.cp, faultIDs...)
		f.g.Down()
		require.NoError(t, f.cp.RestoreEtcd(t.Context(), saved))
		f.g.Up()
	}},
	{"etcd restored while a 410 is being answered", false, listed("rv-ahead"), func(t *testing.T, f *faults, change func()) {
		saved := filepath.Join(t.TempDir(), "etcd")
		require.NoError(t, f.cp.SaveEtcd(t.Context(), saved))
		change()
		goPast(t, f.cp, "0", "unmade-"+strconv.FormatUint(f.random.Uint64(), 36))
		f.touchWidgets(t)
		_, err := objects.Touch(t.Context(), f.cp.RESTConfig(controlplane.Admin), "configmaps", 30)
		require.NoError(t, err)
		f.a.requireServers(f.cp, faultIDs...)
		checkpoint := f.a.awaitCaughtUp(anywhere("configmaps"))["configmaps"].ResourceVersion
		f.g.answer(func(r *http.Request) int {
			q := r.URL.Query()
			switch {
			case r.URL.Path != "/api/v1/configmaps":
				return 0
			case q.Has("watch"):
				return http.StatusGone
			case q.Has("limit") && q.Get("limit") != "1":
				return http.StatusServiceUnavailable // the list
			}
			return 0
		})
		f.g.Down()
		f.g.Up()
		f.a.await("the list is asked for", func(s *localapi.Status) string {
			if f.g.answered() < 2 {
				return "no list"
			}
			return ""
		})
		f.g.Down()
		require.NoError(t, f.cp.RestoreEtcd(t.Context(), saved))
		goPast(t, f.cp, checkpoint, "instead-"+strconv.FormatUint(f.random.Uint64(), 36))
		f.g.answer(nil)
		f.g.Up()
	}},
	{"another cluster", false, listed("cluster-changed"), func(t *testing.T, f *faults, _ func()) {
		f.g.lead(t, quietControlPlane(t))
		f.g.Down()
		f.g.Up()
		f.cp = quietControlPlane(t)
	}},
}

// faults is the environment in which server faults are injected.
type faults struct {
	x      *site
	a      *agent
	cp     *controlplane.ControlPlane // the server that the agent is to follow
	g      *gateway
	random *rand.Rand
	reader *reader // fails the test if a checkpoint goes back

	replaced bool // the certificate authority was replaced
}

// TestFaultServer injects the faults of servers while an agent runs, with a client that follows its
// changes and one that polls it. After each fault the cache must equal the server's state, only
// lists for the expected reasons may have been made, the follower must have received each change
// once, and no object that stayed on the server may have been missing.
func TestFaultServer(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: times(480, 960), Widgets: 40, Namespaces: 4}))
	g := newGateway(t, cp)
	x := newSite(t, settings{kubeconfig: g.Kubeconfig, resources: "- resource: configmaps\n- resource: widgets.example.com"})
	if !*full {
		// With the defaults this would take most of the test's time.
		x.env = []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=3", "HTTP2_PING_TIMEOUT_SECONDS=2"}
	}
	f := &faults{x: x, a: x.start(), cp: cp, g: g, random: random(t), reader: x.read()}
	f.a.requireServers(cp, faultIDs...)
	looker := x.look(onServer(t, cp, "configmaps"))
	for round := range times(1, 2) {
		for i, fault := range serverFaults {
			if i == len(serverFaults)-1 && round < times(1, 2)-1 {
				continue // there is no way back
			}
			if fault.ours && cp.Own() {
				t.Logf("%s: not on a server that the test did not start", fault.name)
				continue
			}
			if i == len(serverFaults)-1 {
				looker.stop() // no object stays
			}
			started := time.Now()
			f.test(t, fault, fmt.Sprintf("%s-%d", "round", round))
			t.Logf("%s: %s", fault.name, time.Since(started).Round(time.Second))
		}
	}
	f.a.stop()
	t.Logf("looked %d times, read %d times", looker.looked.Load(), f.reader.reads())
	require.Greater(t, looker.looked.Load(), int64(len(serverFaults)))
	require.Greater(t, f.reader.reads(), len(serverFaults))
}

// test injects one fault.
func (f *faults) test(t *testing.T, fault serverFault, round string) {
	// A new process, since an agent that has just been through other faults has a longer backoff.
	f.a.stop()
	f.a = f.x.start()
	before := onServer(t, f.cp, "configmaps")
	now := f.a.awaitCaughtUp(map[string]string{"configmaps": before.newest(), "widgets.example.com": ""})
	for _, id := range faultIDs {
		require.Zero(t, now[id].Lists, "%s: lists of %s after a restart", fault.name, id)
	}
	agent := f.a
	follower := f.x.follow(now["configmaps"].ResourceVersion)
	d := f.changer(t)
	if fault.reasons["configmaps"] == "rv-ahead" {
		f.reader.restored()
	}
	fault.do(t, f, func() {
		for range 3 {
			d.modify(d.next(), fault.name+round)
		}
		d.delete(d.next())
		d.delete(d.next())
		name := strings.ReplaceAll(strings.ReplaceAll(fault.name, " ", "-"), ",", "") + "-" + round
		d.create(name)
		d.create(name + "-last")
	})
	for id, reason := range fault.reasons {
		f.a.await(fault.name+": "+id+" is listed", func(s *localapi.Status) string {
			if c := collections(s)[id]; c.ListReason != reason {
				return fmt.Sprintf("phase %s, listed for %s, %s", c.Phase, c.ListReason, c.Problem)
			}
			return ""
		})
	}
	f.a.requireServers(f.cp, faultIDs...)
	if fault.reasons["configmaps"] != "cluster-changed" {
		f.reader.check()
	}
	for _, id := range faultIDs {
		want := counters{}
		if reason := fault.reasons[id]; reason != "" {
			want[reason] = 1
		}
		got := counters{}
		for reason, n := range f.a.relists(id) {
			if n != 0 {
				got[reason] = n
			}
		}
		require.Equal(t, want, got, "%s: lists of %s", fault.name, id)
	}
	switch {
	case f.a != agent: // the follower was disconnected with it
		_, _ = follower.wait()
	case fault.reasons["configmaps"] == "rv-ahead" || fault.reasons["configmaps"] == "cluster-changed":
		code, stderr := follower.wait()
		require.Equal(t, 5, code, "%s: a follower of a replaced history ends: %s", fault.name, stderr)
	default:
		follower.requireLines(difference(before, onServer(t, f.cp, "configmaps")))
		follower.interrupt()
	}
}

// requireLines waits for these lines, in any order, and fails if there are others.
func (f *following) requireLines(want []string) {
	f.t.Helper()
	missing := make(map[string]bool, len(want))
	for _, line := range want {
		missing[line] = true
	}
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-f.lines:
			switch {
			case !ok:
				code, stderr := f.end()
				f.t.Fatalf("it ended with %d before %v: %s", code, missing, stderr)
			case line == "BOOKMARK" && len(missing) == 0:
				return
			case line == "BOOKMARK":
			case !missing[line]:
				f.t.Fatalf("it received %q, which did not happen or was received before", line)
			}
			delete(missing, line)
		case <-timeout:
			f.t.Fatalf("waited in vain for %v", missing)
		}
	}
}

// touchWidgets changes a widget, so that the checkpoint of widgets is recent.
func (f *faults) touchWidgets(t *testing.T) {
	t.Helper()
	_, err := objects.Touch(t.Context(), f.cp.RESTConfig(controlplane.Admin), "widgets", 1)
	require.NoError(t, err)
}

// enough is how many requests are refused in a storm.
func enough() int { return times(4, 8) }

// storm cuts all connections and has the gateway answer requests itself until the agent has made
// some.
func (f *faults) storm(t *testing.T, change func(), answer func(*http.Request) int) {
	t.Helper()
	f.g.answer(answer)
	f.g.Down()
	change()
	f.g.Up()
	poll(t, "requests are refused", nil, func(context.Context) (bool, error) { return f.g.answered() >= enough(), nil })
	f.g.answer(nil)
}

// remakeNamespace deletes a namespace with all its configmaps, and creates all of them again under
// the same names.
func (f *faults) remakeNamespace(t *testing.T, name string) {
	t.Helper()
	client := harness.Clientset(t, f.cp.RESTConfig(controlplane.Admin))
	configmaps := client.CoreV1().ConfigMaps(name)
	old, err := configmaps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, old.Items)
	require.NoError(t, client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
	for _, o := range old.Items {
		require.NoError(t, configmaps.Delete(t.Context(), o.Name, metav1.DeleteOptions{}))
	}
	// The work of a controller once the namespace is empty.
	ns, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	ns.Spec.Finalizers = nil
	_, err = client.CoreV1().Namespaces().Finalize(t.Context(), ns, metav1.UpdateOptions{})
	require.NoError(t, err)
	poll(t, "the namespace is gone", nil, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	ns.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: ns.Labels}
	_, err = client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, o := range old.Items {
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: name, Labels: o.Labels}
		poll(t, "the server knows that the namespace is another one", nil, func(ctx context.Context) (bool, error) {
			_, err := configmaps.Create(ctx, &o, metav1.CreateOptions{})
			if apierrors.IsForbidden(err) {
				return false, nil // it is being terminated
			}
			return err == nil, err
		})
	}
}

// remakeWidgets deletes the definition of widgets, and so the widgets, and creates both again, with
// one more field.
func (f *faults) remakeWidgets(t *testing.T) {
	t.Helper()
	client := harness.Dynamic(t, f.cp.RESTConfig(controlplane.Admin))
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	crd := objects.WidgetCRD()
	require.NoError(t, definitions.Delete(t.Context(), crd.GetName(), metav1.DeleteOptions{}))
	poll(t, "the definition is gone", nil, func(ctx context.Context) (bool, error) {
		_, err := definitions.Get(ctx, crd.GetName(), metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	f.a.awaitNotCaughtUp("widgets.example.com")
	poll(t, "readers get the reason", nil, func(context.Context) (bool, error) {
		answer := f.a.overSocket("/apis/example.com/v1/widgets")
		return strings.Contains(answer.Header.Get("Warning"), "the server does not have this resource"), nil
	})
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedField(versions[0].(map[string]any), map[string]any{"type": "string", "default": "plain"},
		"schema", "openAPIV3Schema", "properties", "spec", "properties", "grade"))
	require.NoError(t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	_, err = definitions.Create(t.Context(), crd, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, objects.Seed(t.Context(), f.cp, objects.SeedOptions{Widgets: 25, Namespaces: 4}))
}

// awaitNotCaughtUp waits until a collection is not caught up.
func (a *agent) awaitNotCaughtUp(id string) {
	a.t.Helper()
	a.await(id+" is not caught up", func(s *localapi.Status) string {
		if collections(s)[id].CaughtUp {
			return "still caught up"
		}
		return ""
	})
}

// awaitProblem waits until the agent reports a problem that contains text.
func (a *agent) awaitProblem(id, text string) {
	a.t.Helper()
	a.await(id+" has a problem with the "+text, func(s *localapi.Status) string {
		if c := collections(s)[id]; !strings.Contains(c.Problem, text) {
			return fmt.Sprintf("phase %s, problem %q", c.Phase, c.Problem)
		}
		return ""
	})
}

// rvPlus returns the newest resourceVersion plus n.
func rvPlus(t *testing.T, cp *controlplane.ControlPlane, n int64) string {
	t.Helper()
	rev, err := cp.Revision(t.Context())
	require.NoError(t, err)
	return fmt.Sprint(rev + n)
}
