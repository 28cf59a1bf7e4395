package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// The service of a second cluster, its configuration and its socket.
const (
	eastUnit   = "snapcache@east"
	eastConfig = "/etc/snapcache/east/agent.yaml"
	eastSocket = "/run/snapcache/east/snapcache.sock"
)

// secondCluster starts the service of another cluster beside the first one. Each has its own cache, socket,
// credentials and snapshots, and what is done to one leaves the other as it is.
func (x *site) secondCluster(t *testing.T) {
	cp := harness.ControlPlane(t, controlplane.Options{})
	harness.Kubectl(t, cp, "create", "namespace", "shop")
	harness.Kubectl(t, cp, "create", "configmap", "-n", "shop", "of-east", "--from-literal=a=b")
	x.write(t, filepath.Join(filepath.Dir(eastConfig), "kubeconfig"), string(harness.ReadFile(t, harness.Kubeconfig(t, cp, controlplane.Reader))), 0o600)
	x.write(t, eastConfig, agentConfig, 0o644)
	require.Contains(t, x.run(t, "snapcache", "config", "check", "--config", eastConfig), "/var/lib/snapcache/east/cache.db; socket "+eastSocket)
	first := x.show(t, "MainPID")
	x.run(t, "systemctl", "enable", "--now", eastUnit, "snapcache-snapshot@east.timer")
	x.await(t, "the second cluster's objects", func() bool {
		s := x.east(t)
		return len(s.Collections) == 1 && s.Collections[0].CaughtUp
	})

	t.Run("each answers for its own cluster", func(t *testing.T) {
		require.Equal(t, wanted, x.dumped(t))
		dump := "HOME=/ snapcache dump configmaps -o name --config " + eastConfig
		for _, user := range []string{"root", "alice"} {
			out := x.run(t, "runuser", "-u", user, "--", "sh", "-c", dump)
			require.Contains(t, out, "of-east")
			require.NotContains(t, out, "till-")
		}
		_, err := x.try(t, "runuser", "-u", "mallory", "--", "sh", "-c", dump)
		require.Error(t, err)
		require.NotEqual(t, x.status(t).Agent.Server, x.east(t).Agent.Server)
		require.Equal(t, "snapcache:snapcache 700", x.run(t, "stat", "-c", "%U:%G %a", "/var/lib/snapcache/east"))
	})
	t.Run("reload", func(t *testing.T) {
		x.write(t, eastConfig, agentConfig+"- resource: namespaces\n", 0o644)
		x.run(t, "systemctl", "reload", eastUnit)
		x.await(t, "both collections", func() bool { return len(x.east(t).Collections) == 2 })
		require.Len(t, x.status(t).Collections, 1)
	})
	t.Run("snapshot", func(t *testing.T) {
		x.run(t, "systemctl", "start", "snapcache-snapshot@east.service")
		snapshots, err := os.ReadDir(filepath.Join(x.dir, "/var/lib/snapcache/east/snapshots"))
		require.NoError(t, err)
		require.NotEmpty(t, snapshots)
	})
	t.Run("socket", func(t *testing.T) {
		x.run(t, "systemctl", "stop", eastUnit+".service")
		require.Len(t, x.east(t).Collections, 2)
	})
	t.Run("stop", func(t *testing.T) {
		x.run(t, "systemctl", "stop", eastUnit+".service", eastUnit+".socket")
		require.Equal(t, wanted, x.dumped(t))
		// Read from its file, never from the first cluster's.
		require.Contains(t, x.run(t, "snapcache", "dump", "configmaps", "-o", "name", "--config", eastConfig), "of-east")
		x.run(t, "systemctl", "start", eastUnit)
	})
	require.Equal(t, first, x.show(t, "MainPID"))
}

// secondUpgraded checks that an upgrade of the package has restarted the second cluster's service, too.
func (x *site) secondUpgraded(t *testing.T) {
	x.await(t, "the second service's new program", func() bool {
		a := x.east(t).Agent
		return a != nil && a.Version == newVersion
	})
}

// secondRemoved checks that nothing of the second cluster's service runs or is enabled without the package.
func (x *site) secondRemoved(t *testing.T) {
	out, _ := x.try(t, "systemctl", "list-units", "--all", "--plain", "--no-legend", "snapcache*@*")
	require.Empty(t, strings.TrimSpace(out))
	links, err := filepath.Glob(filepath.Join(x.dir, "/etc/systemd/system/*.wants/snapcache*@*"))
	require.NoError(t, err)
	require.Empty(t, links)
	require.FileExists(t, filepath.Join(x.dir, "/var/lib/snapcache/east/cache.db"))
}

// east returns the status of the second cluster's agent, or the zero value if it does not answer.
func (x *site) east(t *testing.T) (s localapi.Status) {
	t.Helper()
	out, err := x.command(t.Context(), "snapcache", "status", "-o", "json", "--config", eastConfig).Output()
	if err == nil {
		require.NoError(t, json.Unmarshal(out, &s), "%s", out)
	}
	return s
}
