package e2e

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestReload changes the configuration of a running agent: a resource is added, one is removed, one
// gets an index, and an interval changes. For what did not change the server must get no request,
// and readers must not notice. An invalid configuration must change nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 20, Pods: 20, Widgets: 10}))
	first := settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
- resource: namespaces
- resource: pods
`}
	x := newSite(t, first)
	a := x.start()
	a.awaitCaughtUp(anywhere("configmaps", "namespaces", "pods"))
	changes := a.follow("configmaps")

	second := first
	second.more = "verify:\n  interval: 24h\nhealth:\n  maxStaleness: 1h"
	second.resources = `
- resource: pods
  indexes: [{name: node, field: spec.nodeName}]
- resource: configmaps
- resource: widgets.v1.example.com
`
	t.Run("resources, an index and an interval", func(t *testing.T) {
		a := a.in(t)
		before := totals(t, cp)
		a.configure(second)
		require.Equal(t, "changed verify\nchanged health\nremoved namespaces\nchanged pods: indexes\nadded widgets.example.com\n", string(a.must("reload")))
		now := a.awaitCaughtUp(anywhere("configmaps", "pods", "widgets.example.com"))
		since := totals(t, cp).Since(before)
		require.Len(t, now, 3)

		require.Zero(t, since.Count("LIST", "configmaps"), "LIST requests of what did not change")
		require.Zero(t, since.Count("WATCH", "configmaps"), "watches of it that ended")
		require.Equal(t, before.Open("configmaps"), since.Open("configmaps"), "open watches of it")
		require.EqualValues(t, 0, now["configmaps"].Resumes)

		require.Equal(t, 1+store.NewestKeys, since.Count("LIST", "pods"), "LIST requests of a resume: the probe and the newest objects")
		require.EqualValues(t, 1, now["pods"].Lists, "lists of what got an index, since the start")
		require.EqualValues(t, 1, now["pods"].Resumes)
		require.EqualValues(t, 1, now["widgets.example.com"].Lists, "lists of what was added")
		require.Equal(t, 1, a.relists("pods").total(), "the same in the metrics")
		require.Equal(t, 1, a.relists("widgets.example.com")["initial"])
		require.Zero(t, since.Count("LIST", "namespaces"), "LIST requests of what was removed")

		require.NotEmpty(t, a.must("inspect", "pods", "--index", "node"))
		requireSame(t, "widgets", onServer(t, cp, "widgets.example.com"), a.cached("widgets.example.com"))
		r := a.run("dump", "namespaces", "--config", a.config)
		require.NotZero(t, r.Code)
		require.Contains(t, r.Stderr, "not cached")

		touchAll(t, cp, "configmaps")
		require.Equal(t, store.Modified, (<-changes.came).Type, "a reader that followed what did not change")
	})

	t.Run("refused", func(t *testing.T) {
		a := a.in(t)
		good := harness.ReadFile(t, a.config)
		loaded := a.await("an answer", func(*localapi.Status) string { return "" }).Agent.ConfigLoaded
		for _, bad := range []struct {
			name          string
			old, to, text string
		}{
			{"a typing error", "resources:", "resource:", "resource: unknown field"},
			{"an unknown resource", "widgets.v1.example.com", "gadgets.v1.example.com", "gadgets"},
			{"another database", "path: " + a.db, "path: " + a.db + ".other", "store.path can't change while the agent runs"},
			{"another socket", "socket: " + a.socket, "socket: " + a.socket + ".other", "localAPI.socket can't change"},
			{"another metrics port", "address: " + a.metrics, "address: 127.0.0.1:0", "metrics can't change"},
			{"an index of no name", "name: node, ", "", "an index needs a name"},
			{"a namespace for nodes", "- resource: configmaps", "- resource: configmaps\n- {resource: nodes, namespaces: [shop]}", "live in no namespace"},
		} {
			changed := strings.Replace(string(good), bad.old, bad.to, 1)
			require.NotEqual(t, string(good), changed, bad.name)
			require.NoError(t, os.WriteFile(a.config, []byte(changed), 0o600))
			before := totals(t, cp)
			r := a.run("reload", "--socket", a.socket)
			require.Equal(t, 2, r.Code, "%s: %s", bad.name, r.Stderr)
			require.Contains(t, r.Stderr, bad.text, bad.name)
			s := a.await("refused", func(s *localapi.Status) string { return "" })
			require.Contains(t, s.Agent.ConfigProblem, bad.text, bad.name)
			require.Equal(t, loaded, s.Agent.ConfigLoaded, bad.name)
			require.Len(t, s.Collections, 3, bad.name)
			require.Zero(t, totals(t, cp).Since(before).Count("WATCH", ""), "%s: watches that ended", bad.name)
			require.Contains(t, string(harness.ReadFile(a.t, a.log)), "the newest configuration was refused", bad.name)
			require.Equal(t, 0, a.counters("snapcache_config_last_reload_successful", "", "collection")[""], bad.name)
		}

		require.NoError(t, os.WriteFile(a.config, good, 0o600))
		require.NoError(t, a.Cmd.Process.Signal(syscall.SIGHUP))
		a.await("the configuration is in force again", func(s *localapi.Status) string {
			if s.Agent.ConfigLoaded.Equal(loaded) {
				return "it is not"
			}
			return s.Agent.ConfigProblem
		})
		require.Equal(t, 1, a.counters("snapcache_config_last_reload_successful", "", "collection")[""])
	})

	t.Run("a selector", func(t *testing.T) {
		a := a.in(t)
		third := second
		third.resources = strings.Replace(second.resources, "- resource: pods", "- resource: pods\n  labelSelector: example.com/tier", 1)
		a.configure(third)
		require.Equal(t, "changed pods: labelSelector\n", string(a.must("reload")))
		a.await("listed for it", func(s *localapi.Status) string {
			if c := collections(s)["pods"]; !c.CaughtUp || c.ListReason != "scope-changed" {
				return c.Phase + ", listed for " + c.ListReason
			}
			return ""
		})
		require.Zero(t, a.relists("configmaps").total("initial"))
		touchAll(t, cp, "configmaps")
		require.Equal(t, store.Modified, (<-changes.came).Type, "a reader that followed what did not change")
	})

	t.Run("what is followed is removed", func(t *testing.T) {
		a := a.in(t)
		last := second
		last.resources = "- resource: pods"
		a.configure(last)
		require.Contains(t, string(a.must("reload")), "removed configmaps")
		require.ErrorIs(t, <-changes.ended, store.ErrNoCollection)
		a.stop()
		require.Len(t, a.stored().Collections, 1)
	})
}

// followed is a client that follows a collection.
type followed struct {
	came  chan localapi.Change // all but bookmarks
	ended chan error           // why it could not continue
}

// follow follows the changes of a collection from now on, until the test ends.
func (a *agent) follow(id string) followed {
	a.t.Helper()
	s := a.await("an answer", func(*localapi.Status) string { return "" })
	ctx, cancel := context.WithCancel(context.Background())
	f := followed{make(chan localapi.Change, 1000), make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q := localapi.ChangeQuery{Since: collections(s)[id].ResourceVersion, Follow: true}
		err := a.client.Changes(ctx, id, q, func(c localapi.Change) error {
			if c.Type != localapi.Bookmark {
				f.came <- c
			}
			return nil
		})
		if err == nil {
			err = errors.New("it ended without an error")
		}
		f.ended <- err
	}()
	a.t.Cleanup(func() {
		cancel()
		<-ended
	})
	return f
}
