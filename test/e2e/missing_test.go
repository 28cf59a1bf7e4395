package e2e

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestMissingResources starts agents on resources that the server does not have, or has in no
// namespace, with and without stored objects, and behind a login page. No answer of a server ends an
// agent: it serves the other resources, reports these, and follows one as soon as the server has it.
func TestMissingResources(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 20, Pods: 10, Namespaces: 2}))
	g := newGateway(t, cp)
	login := func(*http.Request) int { return http.StatusOK }
	const tills, nodes = "tills.shop.example.com", "nodes@shop-0001"
	x := newSite(t, settings{kubeconfig: g.Kubeconfig, resources: twoResources + "\n- resource: " + tills + "\n- {resource: nodes, namespaces: [shop-0001]}"})
	for _, state := range []string{"first start", "with a cache"} {
		g.answer(login)
		a := x.start()
		if state == "first start" {
			for _, id := range append([]string{tills, nodes}, twoIDs...) {
				a.awaitProblem(id, "login page")
			}
		} else {
			a.await("the cache is served", func(s *localapi.Status) string {
				if c := collections(s)["pods"]; !c.Synced || c.Problem == "" {
					return "pods: " + c.Phase + ", " + c.Problem
				}
				return ""
			})
		}
		g.answer(nil)
		a.requireServers(cp, twoIDs...)
		a.awaitProblem(tills, `the server has no resource "tills" in group shop.example.com`)
		a.awaitProblem(nodes, "resources[3].namespaces: nodes live in no namespace")
		s := a.await("alarms", func(*localapi.Status) string { return "" })
		var alarms []string
		for _, alarm := range s.Alarms() {
			alarms = append(alarms, alarm.String())
		}
		require.Contains(t, strings.Join(alarms, "\n"), tills+": "+localapi.ErrNotSynced.Error()+": the server has no resource")
		require.Contains(t, s.Headline(), "2 of 4 "+localapi.ErrNotSynced.Error())
		require.Contains(t, string(a.metricsText()), `snapcache_collection_synced{collection="`+tills+`"} 0`)
		require.Contains(t, overSocket(t, x.socket, "/api/v1"), `"name":"pods"`, "discovery does not wait for it")
		require.Equal(t, codeNotSynced, x.run("dump", tills, "--config", x.config).Code)
		if state == "first start" {
			a.stop()
			x.awaitLog("the server does not have the resource")
			continue
		}
		createTills(t, cp)
		a.requireServers(cp, "configmaps", "pods")
		a.awaitCaughtUp(anywhere(tills))
		a.stop()
	}
}

// TestServerWithoutResources has an agent wait for a server that has none of its resources.
func TestServerWithoutResources(t *testing.T) {
	t.Parallel()
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, quietControlPlane(t), controlplane.Admin), resources: "- resource: gadgets.v1.example.com\n- resource: customresourcedefinitions.apps"})
	a := x.start()
	a.awaitProblem("gadgets.example.com", `"gadgets"`)
	a.awaitProblem("customresourcedefinitions.apps", "did you mean customresourcedefinitions.apiextensions.k8s.io?")
	a.stop()
}

// socketClient returns a client of a unix socket, with a new connection for each request.
func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
}

// overSocket returns the body of a successful GET.
func overSocket(t *testing.T, socket, path string) string {
	t.Helper()
	code, body := harness.Get(t, socketClient(socket), "http://localhost"+path)
	require.Equal(t, http.StatusOK, code, "%s", body)
	return string(body)
}
