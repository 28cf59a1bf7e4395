package e2e

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestServerRestart restarts the apiserver under an agent, after changes that the agent has not seen. The
// agent reads versions and the changed objects only, and has what the server has. One object is deleted
// and created again under its name.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 400, Widgets: 300}))
	require.NoError(t, objects.SeedPodsDirect(t.Context(), cp, 600))
	ids := []string{"configmaps", "pods", "widgets.example.com"}
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
- resource: pods
- resource: widgets.v1.example.com
`})
	a := x.start()
	a.requireServers(cp, ids...)
	a.stop()

	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	configmaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	list, err := configmaps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	again, gone, changed := list.Items[50], list.Items[150], list.Items[250]
	require.NoError(t, configmaps.Namespace(again.GetNamespace()).Delete(t.Context(), again.GetName(), metav1.DeleteOptions{}))
	again.SetUID("")
	again.SetResourceVersion("")
	_, err = configmaps.Namespace(again.GetNamespace()).Create(t.Context(), &again, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, configmaps.Namespace(gone.GetNamespace()).Delete(t.Context(), gone.GetName(), metav1.DeleteOptions{}))
	changed.SetLabels(map[string]string{"changed": "yes"})
	_, err = configmaps.Namespace(changed.GetNamespace()).Update(t.Context(), &changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "pods", 15)
	require.NoError(t, err)
	forget(t, cp)

	a = x.start()
	a.awaitListed("expired", ids...)
	a.requireServers(cp, ids...)
	require.Equal(t, counters{"added": 0, "updated": 2, "deleted": 1}, a.changes("configmaps"))
	require.Equal(t, counters{"added": 0, "updated": 15, "deleted": 0}, a.changes("pods"))
	require.Zero(t, a.changes("widgets.example.com").total())
	fetched := map[string]string{"configmaps": "2", "pods": "15", "widgets.example.com": "0"}
	require.Equal(t, fetched, x.fetched(t))

	// The same under a running agent.
	require.NoError(t, cp.KillAPIServer(t.Context()))
	a.await("the outage is noticed", func(s *localapi.Status) string {
		if collections(s)["pods"].CaughtUp {
			return "still caught up"
		}
		return ""
	})
	etcd, err := cp.EtcdClient()
	require.NoError(t, err)
	defer etcd.Close()
	key := slices.Sorted(maps.Keys(x.cached("pods")))[0]
	_, err = objects.TouchDirect(t.Context(), etcd, "pods", key, "touched", "while down")
	require.NoError(t, err)
	require.NoError(t, cp.StartAPIServer(t.Context()))
	a.awaitListed("expired", "pods")
	a.requireServers(cp, ids...)
	require.Equal(t, 16, a.changes("pods")["updated"])
	require.Equal(t, "1", x.fetched(t)["pods"])
	a.stop()
}

// fetched returns how many objects the newest list of each collection has fetched, by the log.
func (x *site) fetched(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, fields := range x.logged(t, "msg=listed") {
		all[fields["collection"]] = cmp.Or(fields["fetched"], "whole")
	}
	return all
}

// logged returns the fields of each line of the log that contains text.
func (x *site) logged(t *testing.T, text string) (all []map[string]string) {
	t.Helper()
	for line := range strings.Lines(string(harness.ReadFile(t, x.log))) {
		if !strings.Contains(line, text) {
			continue
		}
		fields := map[string]string{}
		for _, field := range strings.Fields(line) {
			key, value, _ := strings.Cut(field, "=")
			fields[key] = value
		}
		all = append(all, fields)
	}
	return all
}

// TestServerRestart_Spread restarts the apiserver under an agent with the default jitter. The collection that
// has a reader is listed first, the other one within half a minute; until then it is not caught up.
func TestServerRestart_Spread(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 30, Services: 30}))
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
- resource: services
  transform: {keepManagedFields: true}
`})
	written, err := os.ReadFile(x.config)
	require.NoError(t, err)
	written = []byte(strings.Replace(string(written), "resumeJitter: 0s", "resumeJitter: 2s", 1))
	require.NoError(t, os.WriteFile(x.config, written, 0o600))
	a := x.start()
	a.requireServers(cp, "configmaps", "services")
	f := x.follow(x.resumePoint(cp).rv)

	require.NoError(t, cp.KillAPIServer(t.Context()))
	a.await("the outage is noticed", func(s *localapi.Status) string {
		if collections(s)["services"].CaughtUp {
			return "still caught up"
		}
		return ""
	})
	require.NoError(t, cp.CompactEtcd(t.Context()))
	etcd, err := cp.EtcdClient()
	require.NoError(t, err)
	defer etcd.Close()
	key := slices.Sorted(maps.Keys(x.cached("configmaps")))[0]
	_, err = objects.TouchDirect(t.Context(), etcd, "configmaps", key, "touched", "while down")
	require.NoError(t, err)
	require.NoError(t, cp.StartAPIServer(t.Context()))
	a.awaitListed("expired", "configmaps", "services")
	a.requireServers(cp, "configmaps", "services")

	waits := x.waits(t)
	require.Contains(t, waits, "services")
	require.LessOrEqual(t, waits["configmaps"], 2*time.Second)
	require.LessOrEqual(t, waits["services"], 30*time.Second)
	f.interrupt()
	a.stop()
}

// waits returns how long the list of each collection was to wait, by the log.
func (x *site) waits(t *testing.T) map[string]time.Duration {
	t.Helper()
	all := map[string]time.Duration{}
	for _, fields := range x.logged(t, `msg="waiting before the list"`) {
		wait, err := time.ParseDuration(fields["wait"])
		require.NoError(t, err)
		all[fields["collection"]] = wait
	}
	return all
}

// TestQuietCheckpoint keeps a collection without changes beside others that change, at etcd's default of a
// progress notification in ten minutes: an apiserver may then repeat the same resourceVersion in each
// bookmark. Such an old checkpoint makes no list after a restart of the agent, even if etcd has compacted it,
// and an ordinary one after a restart of the apiserver.
func TestQuietCheckpoint(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 300, Services: 20}))
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: configmaps"})
	a := x.start()
	a.requireServers(cp, "configmaps")
	quiet := x.resumePoint(cp).rv
	for range 5 {
		_, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "services", 20)
		require.NoError(t, err)
	}
	require.NoError(t, cp.CompactEtcd(t.Context()))
	require.Equal(t, quiet, x.resumePoint(cp).rv, "no bookmark has moved it")
	a.kill()

	a = x.start()
	a.awaitCaughtUp(anywhere("configmaps"))
	a.requireServers(cp, "configmaps")
	require.Zero(t, a.relists("configmaps").total(), "the server's history of the collection reaches back to its own start")

	require.NoError(t, cp.RestartAPIServer(t.Context()))
	a.awaitListed("expired", "configmaps")
	a.requireServers(cp, "configmaps")
	require.Zero(t, a.changes("configmaps").total(), "nothing is written again")
	require.Equal(t, "0", x.fetched(t)["configmaps"])
	a.stop()
}

// TestQuietWatch: a watch of a collection without changes stays as it is for longer than a server may take between two
// bookmarks, whether any come or not.
func TestQuietWatch(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 20, Services: 5}))
	g := newGateway(t, cp)
	x := newSite(t, settings{kubeconfig: g.Kubeconfig, resources: "- resource: configmaps"})
	a := x.start()
	a.requireServers(cp, "configmaps")
	pass := func(seconds int) {
		for range seconds / 10 {
			sleep(t, 10*time.Second)
			_, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "services", 2)
			require.NoError(t, err)
			require.True(t, a.awaitStatus()["configmaps"].CaughtUp)
		}
	}
	pass(10)
	lists, watches := g.begun()
	pass(90)
	listsNow, watchesNow := g.begun()
	require.Equal(t, lists, listsNow, "lists")
	require.Equal(t, watches, watchesNow, "watches")
	a.stop()
}
