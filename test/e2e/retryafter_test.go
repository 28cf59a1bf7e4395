package e2e

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestRetryAfterHour: a gateway answers 429 for a while and asks for an hour, to a running agent and to
// one that has yet to look a resource up. Once the gateway lets requests through, a reload is enough.
func TestRetryAfterHour(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 5}))
	g := newGateway(t, cp)
	g.delay = 3600
	x := newSite(t, settings{kubeconfig: g.Kubeconfig, resources: "- resource: configmaps\n- resource: services"})
	a := x.start()
	a.awaitCaughtUp(anywhere("configmaps", "services"))

	busy := func(*http.Request) int { return http.StatusTooManyRequests }
	waits := func(s *localapi.Status) string {
		for id, c := range collections(s) {
			if c.CaughtUp || c.ProblemKind != "throttled" {
				return id + " does not wait: " + c.Phase + " " + c.Problem
			}
		}
		return ""
	}
	for _, wake := range []struct {
		name string
		do   func(*agent)
	}{
		{"reload", func(a *agent) { a.must("reload") }},
		{"hangup", func(a *agent) { require.NoError(a.t, a.Cmd.Process.Signal(syscall.SIGHUP)) }},
	} {
		t.Run(wake.name, func(t *testing.T) {
			a := a.in(t)
			g.answer(busy)
			g.Down()
			g.Up() // the watches end
			a.await("it waits", waits)
			g.answer(nil)
			wake.do(a)
			a.awaitCaughtUp(anywhere("configmaps", "services"))
		})
	}

	t.Run("a resource that is not known yet", func(t *testing.T) {
		a := a.in(t)
		g.answer(func(r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, "/apis/apps/v1") {
				return http.StatusTooManyRequests
			}
			return 0
		})
		more := settings{kubeconfig: g.Kubeconfig, resources: "- resource: configmaps\n- resource: deployments.v1.apps"}
		a.configure(more)
		a.must("reload")
		a.await("it waits", func(s *localapi.Status) string {
			if c := collections(s)["deployments.apps"]; c.ProblemKind != "throttled" {
				return c.Phase + " " + c.Problem
			}
			return ""
		})
		g.answer(nil)
		a.must("reload")
		a.awaitCaughtUp(anywhere("configmaps", "deployments.apps"))
	})
}
