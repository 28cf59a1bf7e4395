package node

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

const (
	configPath     = "/etc/snapcache/agent.yaml"
	kubeconfigPath = "/etc/snapcache/kubeconfig"
	socketPath     = "/run/snapcache/snapcache.sock"
	nodeExamples   = "/usr/share/doc/snapcache/examples/node"

	// maxExposure is the highest exposure level that systemd-analyze security may report for the
	// service, times ten.
	maxExposure = "13"

	// wanted is the number of objects that the agent caches with [agentConfig].
	wanted = 5
)

// agentConfig caches the config maps of a namespace. Changes are durable soon, and there is no
// jitter, since only one agent starts.
const agentConfig = `apiVersion: snapcache.dev/v1alpha1
kind: AgentConfiguration
resumeJitter: 0s
metrics:
  disabled: true
store:
  commitInterval: 50ms
resources:
- resource: configmaps
  namespaces: [shop]
`

// site is a machine with the service, and the control plane of its agent.
type site struct {
	*machine
	cp *controlplane.ControlPlane
}

// TestNode runs the life of the service on a node, from installation to purge. Each part continues
// from the state that the one before it left.
func TestNode(t *testing.T) {
	needs(t, true, "systemd-nspawn", "debootstrap", "dpkg-deb", "nsenter")
	packages := map[string]string{}
	for _, version := range []string{oldVersion, newVersion} {
		packages[version] = one(t, dist(t, version), "*_amd64.deb")
	}
	x := &site{cp: newControlPlane(t), machine: newMachine(t)}

	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"install", func(t *testing.T) { x.install(t, packages[oldVersion]) }},
		{"units", x.units},
		{"start", x.firstStart},
		{"journal", x.journal},
		{"credentials", x.credentials},
		{"readers", x.readers},
		{"reload", x.reload},
		{"connections", x.connections},
		{"snapshots", x.snapshots},
		{"key", x.key},
		{"socket", x.socket},
		{"typo", x.typo},
		{"other disk", x.otherDisk},
		{"second cluster", x.secondCluster},
		{"killed", x.killed},
		{"stuck", x.stuck},
		{"upgrade", func(t *testing.T) { x.upgrade(t, packages[newVersion]) }},
		{"without a server", x.withoutServer},
		{"patient start", x.patientStart},
		{"boot without a server", x.bootWithoutServer},
		{"kubelet", x.kubelet},
		{"remove", func(t *testing.T) { x.remove(t, packages[newVersion]) }},
		{"purge", x.purge},
	} {
		if !t.Run(part.name, part.run) {
			return
		}
	}
}

// newControlPlane starts a control plane and creates the objects to cache.
func newControlPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	cp := harness.ControlPlane(t, controlplane.Options{})
	harness.Kubectl(t, cp, "create", "namespace", "shop")
	for i := range wanted {
		harness.Kubectl(t, cp, "create", "configmap", "-n", "shop", fmt.Sprintf("till-%d", i), "--from-literal=a=b")
	}
	return cp
}

// install installs the package, which must not start the service.
func (x *site) install(t *testing.T, deb string) {
	x.run(t, "dpkg", "-i", x.copyIn(t, deb))
	require.Contains(t, x.run(t, "snapcache", "version"), oldVersion)
	require.Contains(t, x.run(t, "id", "snapcache"), "(snapcache)")
	for _, unit := range []string{"snapcache.service", "snapcache.socket", "snapcache-snapshot.timer"} {
		out, _ := x.try(t, "systemctl", "is-enabled", unit)
		require.Equal(t, "disabled", strings.TrimSpace(out), unit)
		out, _ = x.try(t, "systemctl", "is-active", unit)
		require.Equal(t, "inactive", strings.TrimSpace(out), unit)
	}
	require.Contains(t, x.run(t, "snapcache", "config", "check", "--config", configPath), "ok")
	// The configuration is a conffile: an upgrade keeps the changes in it.
	require.Equal(t, configPath, x.run(t, "dpkg-query", "-W", "-f", "${Conffiles}", "snapcache")[:len(configPath)])
}

// units has systemd verify the installed units, and holds the exposure level of the service to
// maxExposure.
func (x *site) units(t *testing.T) {
	out := x.run(t, "sh", "-c", "systemd-analyze verify --man=no /usr/lib/systemd/system/snapcache* 2>&1")
	require.Empty(t, out)
	out = x.run(t, "systemd-analyze", "security", "--no-pager", "--threshold="+maxExposure, "snapcache.service")
	score := regexp.MustCompile(`Overall exposure level.*: ([0-9.]+)`).FindStringSubmatch(out)
	require.Len(t, score, 2, "%s", out)
	t.Logf("exposure: %s", score[1])
}

// firstStart starts the service, which lists once.
func (x *site) firstStart(t *testing.T) {
	path := harness.Kubeconfig(t, x.cp, controlplane.Reader)
	kubeconfig := harness.ReadFile(t, path)
	x.write(t, kubeconfigPath, string(kubeconfig), 0o600)
	x.write(t, configPath, agentConfig, 0o644)
	x.run(t, "systemctl", "enable", "--now", "snapcache")
	c := x.awaitCaughtUp(t)
	require.EqualValues(t, wanted, c.Objects)
	require.EqualValues(t, 1, c.Lists)
	x.await(t, "the status line", func() bool {
		return strings.HasPrefix(x.show(t, "StatusText"), fmt.Sprintf("caught up: %d objects in 1 collection", wanted))
	})
	require.Equal(t, "snapcache:snapcache 700", x.run(t, "stat", "-c", "%U:%G %a", "/var/lib/snapcache"))
	require.Equal(t, "snapcache:snapcache 600", x.run(t, "stat", "-c", "%U:%G %a", "/var/lib/snapcache/cache.db"))
}

// credentials checks that only root can read the kubeconfig, and that the service has a copy.
func (x *site) credentials(t *testing.T) {
	_, err := x.try(t, "runuser", "-u", "snapcache", "--", "cat", kubeconfigPath)
	require.Error(t, err, "the service's user reads root's kubeconfig")
	environment := x.run(t, "sh", "-c", "tr '\\0' '\\n' </proc/"+x.show(t, "MainPID")+"/environ")
	require.Contains(t, environment, "KUBECONFIG=/run/credentials/snapcache.service/kubeconfig")
	require.Equal(t, "snapcache", x.run(t, "stat", "-c", "%U", "/proc/"+x.show(t, "MainPID")))
}

// readers checks that members of the group can read the cache, and no other user.
func (x *site) readers(t *testing.T) {
	dump := []string{"snapcache", "dump", "configmaps", "-o", "name", "--socket", socketPath}
	x.run(t, "useradd", "--groups", "snapcache", "alice")
	x.run(t, "useradd", "mallory")
	require.Equal(t, wanted, len(strings.Fields(x.run(t, append([]string{"runuser", "-u", "alice", "--"}, dump...)...))))
	out, err := x.try(t, append([]string{"runuser", "-u", "mallory", "--"}, dump...)...)
	require.Error(t, err)
	require.Contains(t, out, "permission denied")
	// The service is found without options, and with the configuration that it has.
	for _, args := range []string{"status", "get cm -n shop", "status --config " + configPath} {
		x.run(t, "runuser", "-u", "alice", "--", "sh", "-c", "HOME=/home/alice XDG_RUNTIME_DIR=/run/user/1000 snapcache "+args)
		out, err := x.try(t, "runuser", "-u", "mallory", "--", "sh", "-c", "HOME=/home/mallory snapcache "+args)
		require.Error(t, err, args)
		require.Contains(t, out, "member of the socket's group", args)
	}
}

// typo checks that the service starts as soon as its configuration is mended, whatever a reader that waits
// on the socket has made of the mistake.
func (x *site) typo(t *testing.T) {
	x.run(t, "systemctl", "stop", "snapcache.service")
	x.write(t, configPath, agentConfig+"typo: 1\n", 0o644)
	out, err := x.try(t, "snapcache", "status")
	require.Error(t, err, out)
	x.await(t, "the starts end", func() bool {
		out, _ := x.try(t, "systemctl", "is-failed", "snapcache.socket")
		return strings.TrimSpace(out) == "failed"
	})
	x.write(t, configPath, agentConfig, 0o644)
	x.run(t, "systemctl", "start", "snapcache")
	x.requireResumed(t)
	require.Equal(t, "active", x.run(t, "systemctl", "is-active", "snapcache.socket"))
}

// otherDisk moves the cache to a directory that the unit has to be told of.
func (x *site) otherDisk(t *testing.T) {
	const dir, dropIn = "/srv/cache", "/etc/systemd/system/snapcache.service.d/override.conf"
	x.run(t, "install", "-d", "-o", "snapcache", "-g", "snapcache", "-m", "0700", dir)
	x.write(t, configPath, strings.Replace(agentConfig, "store:\n", "store:\n  path: "+dir+"/cache.db\n", 1), 0o644)
	lines := "[Service]\nReadWritePaths=" + dir + "\n"
	const check = "snapcache config check --config " + configPath + " 2>&1"
	out := x.run(t, "sh", "-c", check)
	for line := range strings.Lines(lines) {
		require.Contains(t, out, `"`+strings.TrimSpace(line)+`"`)
	}
	_, err := x.try(t, "systemctl", "--no-block", "restart", "snapcache")
	require.NoError(t, err)
	x.await(t, "the log names the drop-in", func() bool {
		return strings.Contains(x.run(t, "journalctl", "--no-pager", "-u", "snapcache"), "ReadWritePaths="+dir)
	})
	x.run(t, "mkdir", "-p", filepath.Dir(dropIn))
	x.write(t, dropIn, lines, 0o644)
	x.run(t, "systemctl", "daemon-reload")
	require.NotContains(t, x.run(t, "sh", "-c", check), "ReadWritePaths")
	x.run(t, "systemctl", "restart", "snapcache")
	require.EqualValues(t, wanted, x.awaitCaughtUp(t).Objects)
	x.run(t, "rm", dropIn)
	x.run(t, "systemctl", "daemon-reload")
	x.write(t, configPath, agentConfig, 0o644)
	x.run(t, "systemctl", "restart", "snapcache")
	x.requireResumed(t)
}

// reload changes the configuration of the running service, which must reject an invalid one.
func (x *site) reload(t *testing.T) {
	pid := x.show(t, "MainPID")
	x.write(t, configPath, agentConfig+"- resource: namespaces\n", 0o644)
	x.run(t, "systemctl", "reload", "snapcache")
	x.await(t, "both collections caught up", func() bool {
		s := x.status(t)
		return len(s.Collections) == 2 && s.Collections[0].CaughtUp && s.Collections[1].CaughtUp
	})

	x.write(t, configPath, agentConfig+"- resource: []\n", 0o644)
	out, err := x.try(t, "systemctl", "reload", "snapcache")
	require.Error(t, err, "%s", out)
	require.Equal(t, "active", x.run(t, "systemctl", "is-active", "snapcache"))
	require.Len(t, x.status(t).Collections, 2)
	require.Contains(t, x.run(t, "journalctl", "--no-pager", "-u", "snapcache"), configPath+":11: resources[1].resource")

	x.write(t, configPath, agentConfig, 0o644)
	x.run(t, "systemctl", "reload", "snapcache")
	require.EqualValues(t, 1, x.awaitCaughtUp(t).Lists, "a corrected configuration makes no list")
	require.Equal(t, pid, x.show(t, "MainPID"))
}

// socket checks that a request to the socket of a stopped service starts it.
func (x *site) socket(t *testing.T) {
	x.run(t, "systemctl", "stop", "snapcache.service")
	require.Equal(t, "inactive", x.show(t, "ActiveState"))
	require.Equal(t, wanted, x.dumped(t))
	require.Equal(t, "active", x.show(t, "ActiveState"))
	x.requireResumed(t)
}

// killed kills the service; systemd restarts it, and it resumes without a list.
func (x *site) killed(t *testing.T) {
	before := x.show(t, "MainPID")
	x.run(t, "systemctl", "kill", "--signal=KILL", "--kill-whom=main", "snapcache")
	x.awaitRestart(t, before)
	require.Equal(t, "1", x.show(t, "NRestarts"))
	x.requireResumed(t)
}

// stuck checks that the watchdog ends a service that does not go on, and that systemd restarts it.
// The watchdog's timeout is a shorter one.
func (x *site) stuck(t *testing.T) {
	const dropIn = "/etc/systemd/system/snapcache.service.d/impatient.conf"
	x.write(t, dropIn, "[Service]\nWatchdogSec=5\nRestartSec=1\n", 0o644)
	x.run(t, "systemctl", "daemon-reload")
	x.run(t, "systemctl", "restart", "snapcache")
	x.requireResumed(t)

	before := x.show(t, "MainPID")
	x.run(t, "systemctl", "kill", "--signal=STOP", "--kill-whom=main", "snapcache")
	harness.Kubectl(t, x.cp, "create", "configmap", "-n", "shop", "late")
	x.awaitRestart(t, before)
	require.Contains(t, x.run(t, "journalctl", "--no-pager", "-u", "snapcache"), "Watchdog timeout (limit 5s)!")

	// The restarted agent resumes, and gets the changes of the meantime.
	x.await(t, "what came while it was stuck", func() bool { return x.awaitCaughtUp(t).Objects == wanted+1 })
	harness.Kubectl(t, x.cp, "delete", "configmap", "-n", "shop", "late")
	x.await(t, "the deletion", func() bool { return x.awaitCaughtUp(t).Objects == wanted })
	x.requireResumed(t)
	x.run(t, "rm", dropIn)
	x.run(t, "systemctl", "daemon-reload")
}

// upgrade installs a new version: the service restarts with the new program and the same cache, and
// the changed configuration stays.
func (x *site) upgrade(t *testing.T, deb string) {
	before := x.show(t, "MainPID")
	x.run(t, "dpkg", "-i", x.copyIn(t, deb))
	require.Contains(t, x.run(t, "snapcache", "version"), newVersion+" ")
	x.awaitRestart(t, before)
	x.requireResumed(t)
	require.Equal(t, newVersion, x.status(t).Agent.Version)
	x.secondUpgraded(t)
	require.Equal(t, strings.TrimSpace(agentConfig), x.run(t, "cat", configPath))
	require.Equal(t, "enabled", x.run(t, "systemctl", "is-enabled", "snapcache"))
}

// withoutServer checks that the service gets ready from the file, without a server.
func (x *site) withoutServer(t *testing.T) {
	require.NoError(t, x.cp.KillAPIServer(t.Context()))
	began := time.Now()
	x.run(t, "systemctl", "restart", "snapcache") // returns with READY=1
	t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
	x.requireServedOffline(t)
}

// patientStart starts a service that is ready only when caught up, while there is no server. It
// must outlast the start timeout of its unit, by asking systemd for more time.
func (x *site) patientStart(t *testing.T) {
	const (
		dropIn  = "/etc/systemd/system/snapcache.service.d/patient.conf"
		toStart = 5 * time.Second
	)
	x.write(t, configPath, agentConfig+"health:\n  readyWhen: caughtUp\n", 0o644)
	x.write(t, dropIn, fmt.Sprintf("[Service]\nTimeoutStartSec=%s\n", toStart), 0o644)
	x.run(t, "systemctl", "daemon-reload")
	began := time.Now()
	x.run(t, "systemctl", "restart", "--no-block", "snapcache")
	x.await(t, "the service that waits for its server", func() bool {
		return x.show(t, "ActiveState") == "activating" && strings.HasPrefix(x.show(t, "StatusText"), "waiting until caught up")
	})
	pid := x.show(t, "MainPID")
	x.await(t, "longer than it has to start", func() bool {
		require.Equal(t, "activating", x.show(t, "ActiveState"), "after %s", time.Since(began))
		return time.Since(began) > 3*toStart
	})
	require.NoError(t, x.cp.StartAPIServer(t.Context()))
	x.await(t, "the service caught up", func() bool { return x.show(t, "ActiveState") == "active" })
	x.awaitCaughtUp(t) // a restarted server may have too little history for a resume
	require.Equal(t, pid, x.show(t, "MainPID"))
	require.Equal(t, "0", x.show(t, "NRestarts"))

	x.run(t, "rm", dropIn)
	x.run(t, "systemctl", "daemon-reload")
	x.write(t, configPath, agentConfig, 0o644)
	require.NoError(t, x.cp.KillAPIServer(t.Context()))
	x.run(t, "systemctl", "restart", "snapcache")
	x.requireServedOffline(t)
}

// bootWithoutServer reboots the machine while there is no server; the service must start with it.
func (x *site) bootWithoutServer(t *testing.T) {
	x.powerOff(t)
	x.boot(t)
	require.Equal(t, "active", x.run(t, "systemctl", "is-active", "snapcache"))
	x.requireServedOffline(t)
	require.NoError(t, x.cp.StartAPIServer(t.Context()))
	x.awaitCaughtUp(t)
}

// kubelet boots without a server and with a unit in the place of the kubelet's, which must start when
// the Kubernetes API can be read, and also when snapcache can't start. The service must have the
// kubelet's newest certificate.
func (x *site) kubelet(t *testing.T) {
	const (
		unit   = "/etc/systemd/system/kubelet.service"
		slowly = "/etc/systemd/system/snapcache.service.d/slowly.conf"
		saw    = "/root/kubelet-saw" // the sockets at its start
		pki    = "/var/lib/kubelet/pki"
	)
	renew := func(certificate string) {
		x.write(t, pki+"/"+certificate, certificate, 0o600)
		x.run(t, "ln", "-sfn", certificate, pki+"/kubelet-client-current.pem")
	}
	renew("first.pem")
	x.write(t, unit, "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'ls /run/snapcache >"+saw+"'\n[Install]\nWantedBy=multi-user.target\n", 0o644)
	x.run(t, "sh", "-c", "cd "+nodeExamples+" && cp -r *.service.d *.path *.service /etc/systemd/system")
	x.write(t, slowly, "[Service]\nExecStartPre=/bin/sleep 2\n", 0o644)
	x.run(t, "systemctl", "enable", "kubelet", "snapcache-kubelet.path")
	x.run(t, "systemctl", "disable", "snapcache") // the kubelet wants it
	x.write(t, configPath, agentConfig+"kubernetesAPI:\n  socket: /run/snapcache/kube.sock\n", 0o644)
	require.NoError(t, x.cp.KillAPIServer(t.Context()))
	x.powerOff(t)
	x.boot(t)
	require.Equal(t, "active", x.run(t, "systemctl", "is-active", "kubelet"))
	require.Contains(t, strings.Fields(x.run(t, "cat", saw)), "kube.sock")
	x.requireServedOffline(t)

	certificate := func() string {
		out, _ := x.try(t, "cat", "/run/credentials/snapcache.service/kubelet.pem")
		return out
	}
	require.Equal(t, "first.pem", certificate())
	renew("second.pem")
	x.await(t, "the renewed certificate", func() bool { return certificate() == "second.pem" && x.show(t, "ActiveState") == "active" })
	require.Equal(t, "active", x.run(t, "systemctl", "is-active", "kubelet"))

	x.write(t, configPath, "no configuration", 0o644)
	x.run(t, "systemctl", "stop", "kubelet", "snapcache")
	x.run(t, "systemctl", "start", "kubelet")
	require.Equal(t, "failed", x.show(t, "ActiveState"))
	require.NotContains(t, strings.Fields(x.run(t, "cat", saw)), "kube.sock")

	x.run(t, "systemctl", "disable", "--now", "kubelet", "snapcache-kubelet.path")
	x.run(t, "sh", "-c", "cd /etc/systemd/system && rm -r kubelet.service* snapcache.service.d snapcache-kubelet.*")
	x.write(t, configPath, agentConfig, 0o644)
	x.run(t, "systemctl", "daemon-reload")
	require.NoError(t, x.cp.StartAPIServer(t.Context()))
	x.run(t, "systemctl", "reset-failed", "snapcache")
	x.run(t, "systemctl", "enable", "--now", "snapcache")
	x.awaitCaughtUp(t)
}

// remove removes the package: cache and configuration stay, and the next installation resumes from
// them.
func (x *site) remove(t *testing.T, deb string) {
	x.run(t, "dpkg", "--remove", "snapcache")
	for _, unit := range []string{"snapcache.service", "snapcache.socket"} {
		out, _ := x.try(t, "systemctl", "show", "-P", "LoadState", unit)
		require.Equal(t, "not-found", strings.TrimSpace(out), unit)
	}
	x.requireGone(t, "/usr/bin/snapcache", "/run/snapcache")
	x.secondRemoved(t)
	require.FileExists(t, filepath.Join(x.dir, "/var/lib/snapcache/cache.db"))

	x.run(t, "dpkg", "-i", x.copyIn(t, deb))
	require.Equal(t, strings.TrimSpace(agentConfig), x.run(t, "cat", configPath))
	x.run(t, "systemctl", "enable", "--now", "snapcache")
	x.awaitCaughtUp(t)
	x.requireResumed(t)
}

// purge purges the package: the cache goes too, and the kubeconfig, which the package does not own,
// stays.
func (x *site) purge(t *testing.T) {
	x.run(t, "dpkg", "--purge", "snapcache")
	x.requireGone(t, "/usr/bin/snapcache", "/run/snapcache", "/var/lib/snapcache", configPath)
	require.FileExists(t, filepath.Join(x.dir, kubeconfigPath))
	require.Empty(t, x.run(t, "sh", "-c", "systemctl list-units --all --plain --no-legend 'snapcache*'"))
}

// show returns a property of the service.
func (x *site) show(t *testing.T, property string) string {
	t.Helper()
	return x.run(t, "systemctl", "show", "-P", property, "snapcache")
}

// status returns the agent's status, or the zero value if the agent does not answer.
func (x *site) status(t *testing.T) localapi.Status {
	t.Helper()
	var s localapi.Status
	out, err := x.command(t.Context(), "snapcache", "status", "-o", "json", "--socket", socketPath).Output()
	if err == nil {
		require.NoError(t, json.Unmarshal(out, &s), "%s", out)
	}
	return s
}

// awaitCaughtUp waits until the agent has caught up, and returns its only collection.
func (x *site) awaitCaughtUp(t *testing.T) localapi.Collection {
	t.Helper()
	var c localapi.Collection
	x.await(t, "caught up with the server", func() bool {
		s := x.status(t)
		if len(s.Collections) != 1 {
			return false
		}
		c = s.Collections[0]
		return c.CaughtUp
	})
	return c
}

// awaitRestart waits until the service runs in another process than before.
func (x *site) awaitRestart(t *testing.T, before string) {
	t.Helper()
	x.await(t, "the service as another process", func() bool {
		pid := x.show(t, "MainPID")
		return pid != before && pid != "0" && x.show(t, "ActiveState") == "active"
	})
}

// requireResumed fails if this process has listed.
func (x *site) requireResumed(t *testing.T) {
	t.Helper()
	c := x.awaitCaughtUp(t)
	require.Zero(t, c.Lists, "%s: %s", c.Verdict, c.ListReason)
	require.EqualValues(t, 1, c.Resumes)
	require.EqualValues(t, wanted, c.Objects)
}

// requireServedOffline fails unless the agent, which has no server, answers from its file and
// reports itself as stale.
func (x *site) requireServedOffline(t *testing.T) {
	t.Helper()
	require.Equal(t, wanted, x.dumped(t))
	x.await(t, "the status line", func() bool {
		text := x.show(t, "StatusText")
		return strings.HasPrefix(text, "OFFLINE: data is ") && strings.Contains(text, strconv.Itoa(wanted)+" objects in 1 collection, 0 of 1 caught up")
	})
}

// dumped returns the number of objects that the agent serves over its socket.
func (x *site) dumped(t *testing.T) int {
	t.Helper()
	return len(strings.Fields(x.run(t, "snapcache", "dump", "configmaps", "-o", "name", "--socket", socketPath)))
}

// requireGone fails if one of the paths still exists.
func (x *site) requireGone(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		_, err := os.Lstat(filepath.Join(x.dir, path))
		require.ErrorIs(t, err, fs.ErrNotExist, path)
	}
}
