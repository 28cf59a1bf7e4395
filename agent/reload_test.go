package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/logging/logtest"
	"github.com/snapcache/snapcache/localapi"
)

// These tests reload an agent without a server. Those of the requests that a reload causes are in
// test/e2e.

// reloading is an agent whose next configuration a test can set.
type reloading struct {
	*node
	next   atomic.Pointer[config.AgentConfiguration] // nil if it can't be read
	hangup chan os.Signal
	level  slog.LevelVar
	client *localapi.Client
	log    logtest.Buffer
}

func startReloading(t *testing.T, n *node) *reloading {
	t.Helper()
	r := &reloading{node: n, hangup: make(chan os.Signal, 1), client: localapi.NewClient(n.cfg.LocalAPI.Socket)}
	r.next.Store(n.cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, n.cfg, Options{
			Version: "test", Logger: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: &r.level})),
			Hangup: r.hangup, Level: &r.level,
			Load: func() (*config.AgentConfiguration, error) {
				if cfg := r.next.Load(); cfg != nil {
					return cfg, nil
				}
				return nil, errors.New("agent.yaml:7: a mistake\nagent.yaml:8: another")
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := r.client.Status(ctx)
		return err == nil, nil
	})
	require.NoError(t, err)
	return r
}

// with returns a copy of the node's configuration, changed and then defaulted as by Parse.
func (n *node) with(t *testing.T, change func(*config.AgentConfiguration)) *config.AgentConfiguration {
	t.Helper()
	cfg := *n.cfg
	change(&cfg)
	cfg.SetDefaults()
	require.NoError(t, cfg.Validate())
	return &cfg
}

func (r *reloading) status(t *testing.T) *localapi.Status {
	t.Helper()
	s, err := r.client.Status(t.Context())
	require.NoError(t, err)
	return s
}

func resources(names ...string) []config.Resource {
	var all []config.Resource
	for _, name := range names {
		resource, group, _ := strings.Cut(name, ".")
		all = append(all, config.Resource{Resource: config.ResourceName{Resource: resource, Group: group}})
	}
	return all
}

func TestReloadOffline(t *testing.T) {
	n := newNode(t, "resources: [{resource: pods}, {resource: widgets.example.com}]")
	n.seed(t)
	r := startReloading(t, n)

	changes, err := r.client.Reload(t.Context())
	require.NoError(t, err)
	require.Empty(t, changes, "a reload of an unchanged file changes nothing")

	r.next.Store(n.with(t, func(c *config.AgentConfiguration) {
		c.Log.Level = config.LogDebug
		c.Resources = resources("services", "pods")
		c.Resources[1].Indexes = []config.Index{{Name: "app", Label: "app"}}
	}))
	changes, err = r.client.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"changed log.level", "removed widgets.example.com", "changed pods: indexes", "added services"}, changes)
	require.Equal(t, slog.LevelDebug, r.level.Level())

	s := r.status(t)
	require.Len(t, s.Collections, 2)
	require.Equal(t, "pods", s.Collections[0].ID)
	require.EqualValues(t, 2, s.Collections[0].Objects)
	require.Equal(t, "services", s.Collections[1].ID)
	require.False(t, s.Collections[1].Synced)
	await(t, func() bool {
		_, err := r.client.Index(t.Context(), []string{"pods"}, "app")
		return err == nil
	})
	read := 0
	require.NoError(t, r.client.Objects(t.Context(), []string{"pods"}, localapi.ObjectQuery{}, func(json []byte) error { read++; return nil }))
	require.Equal(t, 2, read)

	// The staleness changes without a restart of the watch.
	r.next.Store(n.with(t, func(c *config.AgentConfiguration) {
		*c = *r.next.Load()
		c.Resources = slices.Clone(c.Resources)
		c.Resources[1].Staleness = config.Staleness{Policy: config.StalenessServe}
	}))
	changes, err = r.client.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"changed pods: staleness"}, changes)

	// Another version is another resource, which the server has to name. Until then the stored
	// objects can be read.
	r.next.Store(n.with(t, func(c *config.AgentConfiguration) {
		c.Resources = resources("pods")
		c.Resources[0].Resource.Version = "v2"
	}))
	changes, err = r.client.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"changed log.level", "changed pods: staleness", "removed services", "changed pods: version, indexes"}, changes)
	require.EqualValues(t, 2, r.status(t).Collections[0].Objects)

	// A removed collection is deleted from the disk. If it is added again, it is a new one.
	r.next.Store(n.with(t, func(c *config.AgentConfiguration) { c.Resources = resources("nodes") }))
	_, err = r.client.Reload(t.Context())
	require.NoError(t, err)
	r.next.Store(n.with(t, func(c *config.AgentConfiguration) { c.Resources = resources("nodes", "pods") }))
	_, err = r.client.Reload(t.Context())
	require.NoError(t, err)
	s = r.status(t)
	require.Len(t, s.Collections, 2)
	require.False(t, s.Collections[1].Synced, "pods have no list yet")
}

func TestReloadRefused(t *testing.T) {
	systemd := notified(t)
	n := newNode(t, "resources: [{resource: pods}]")
	n.seed(t)
	r := startReloading(t, n)
	systemd.next(t, "reload", func(s string) bool { return s == "READY=1" })

	r.next.Store(nil)
	r.hangup <- syscall.SIGHUP
	// systemd is notified of the begin and the end of the reload, and then of the refusal.
	systemd.next(t, "reload", func(s string) bool { return strings.HasPrefix(s, "RELOADING=1\nMONOTONIC_USEC=") })
	systemd.next(t, "reload", func(s string) bool { return s == "READY=1" })
	systemd.next(t, "reload", func(s string) bool {
		return strings.HasPrefix(s, "STATUS=") && strings.HasSuffix(s, "the newest configuration was refused: the configuration was refused: agent.yaml:7: a mistake; agent.yaml:8: another")
	})
	require.Contains(t, r.status(t).Agent.ConfigProblem, "agent.yaml:7: a mistake; agent.yaml:8: another")
	require.Contains(t, r.log.String(), "the newest configuration was refused; the previous one stays in force")

	for _, tc := range []struct {
		field  string
		change func(*config.AgentConfiguration)
	}{
		{"fallbackContext", func(c *config.AgentConfiguration) { c.FallbackContext = "direct" }},
		{"kubeconfig", func(c *config.AgentConfiguration) { c.Kubeconfig += "2" }},
		{"store.type", func(c *config.AgentConfiguration) { c.Store.Type = config.StoreMemory }},
		{"store.path", func(c *config.AgentConfiguration) { c.Store.Path += "2" }},
		{"store.maxSize", func(c *config.AgentConfiguration) { c.Store.MaxSize.Add(c.Store.MaxSize) }},
		{"encryption", func(c *config.AgentConfiguration) { c.Encryption.KeyFile = "key" }},
		{"restore.seed", func(c *config.AgentConfiguration) { c.Restore.Seed = "hub" }},
		{"snapshots.dir", func(c *config.AgentConfiguration) { c.Snapshots.Dir += "2" }},
		{"localAPI.socket", func(c *config.AgentConfiguration) { c.LocalAPI.Socket += "2" }},
		{"kubernetesAPI", func(c *config.AgentConfiguration) { c.KubernetesAPI.Socket = n.dir + "/run/kube.sock" }},
		{"metrics", func(c *config.AgentConfiguration) { c.Metrics.Disabled = false }},
		{"log.format", func(c *config.AgentConfiguration) { c.Log.Format = config.LogJSON }},
	} {
		r.next.Store(n.with(t, func(c *config.AgentConfiguration) {
			tc.change(c)
			c.Resources = resources("nodes")
		}))
		_, err := r.client.Reload(t.Context())
		require.ErrorIs(t, err, localapi.ErrRefused, tc.field)
		require.ErrorContains(t, err, tc.field+" can't change while the agent runs: restart it", tc.field)
		require.Equal(t, "pods", r.status(t).Collections[0].ID, "%s: nothing of it is in force", tc.field)
	}

	r.next.Store(n.cfg)
	_, err := r.client.Reload(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.status(t).Agent.ConfigProblem)
}

// TestReloadAppliesIntervalsAtOnce checks that tasks that wait for an interval of the configuration
// apply a new one at once.
func TestReloadAppliesIntervalsAtOnce(t *testing.T) {
	n := newNode(t, "resources: [{resource: pods}]")
	n.seed(t)
	r := startReloading(t, n)
	require.Empty(t, r.status(t).Snapshots.Name)
	r.next.Store(n.with(t, func(c *config.AgentConfiguration) {
		c.Snapshots.Interval.Duration = time.Hour
		c.Verify.Interval = nil
		c.SetDefaults()
		c.Verify.Interval.Duration = config.MinVerifyInterval
	}))
	changes, err := r.client.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"changed verify", "changed snapshots"}, changes)
	await(t, func() bool { return r.status(t).Snapshots.Name != "" })
	await(t, func() bool { return strings.Contains(r.log.String(), "could not be compared with the server") })
}

// await polls until ok returns true.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, time.Millisecond)
}
