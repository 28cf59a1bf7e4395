package systemd

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unitFiles are the units that a package installs, and templates those of them that are for more clusters.
var (
	unitFiles = slices.Concat([]string{"snapcache.service", "snapcache.socket", "snapcache-snapshot.service", "snapcache-snapshot.timer"}, templates)
	templates = []string{"snapcache@.service", "snapcache@.socket", "snapcache-snapshot@.service", "snapcache-snapshot@.timer"}
)

// settings returns the settings in a unit file, such as "ExecStart=/usr/bin/snapcache ...".
func settings(t *testing.T, unit string) []string {
	t.Helper()
	data, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// analyze runs systemd-analyze, which parses units as systemd does.
func analyze(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if errors.Is(err, exec.ErrNotFound) {
		const missing = "systemd-analyze is not installed: it is in the package systemd (apt-get install systemd, dnf install systemd)"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	} else if err != nil {
		t.Fatal(err)
	}
	return path
}

// systemd parses the units without a warning.
func TestUnitsVerify(t *testing.T) {
	command := []string{"verify", "--man=no"}
	// It checks that the program exists, so the test binary takes the place of snapcache.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// It takes a unit's name from the file's name, and finds the others in the same directory.
	dir := t.TempDir()
	for _, name := range unitFiles {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.ReplaceAll(data, []byte("=/usr/bin/snapcache"), []byte("="+self))
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		command = append(command, path)
	}
	if out, err := exec.CommandContext(t.Context(), analyze(t), command...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// The units and drop-ins for a node whose kubelet reads through snapcache are parsed without a warning,
// too, beside a unit of a kubelet.
func TestNodeUnits(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../examples/node")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := []string{"verify", "--man=no"}
	for unit, text := range map[string]string{
		"kubelet.service": "[Service]\nExecStart=" + self + "\n", "snapcache.service": "[Service]\nType=notify\nExecStart=" + self + "\n",
		"snapcache-kubelet.path": "", "snapcache-kubelet.service": "",
	} {
		path := filepath.Join(dir, unit)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		command = append(command, path)
	}
	if out, err := exec.CommandContext(t.Context(), analyze(t), command...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	const credential = "LoadCredential=kubelet.pem:/var/lib/kubelet/pki/kubelet-client-current.pem"
	if !slices.Contains(settings(t, "../examples/node/snapcache.service.d/10-kubelet.conf"), credential) {
		t.Errorf("%s is missing", credential)
	}
	identity, err := os.ReadFile("../examples/node/kubelet-identity.kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(identity, []byte(": /run/credentials/snapcache.service/kubelet.pem\n")); n != 2 {
		t.Errorf("the credential is named %d times in the kubeconfig, not for certificate and key", n)
	}
	lines := settings(t, "../examples/node/kubelet.service.d/10-snapcache.conf")
	if want := []string{"[Unit]", "After=snapcache.service", "Wants=snapcache.service"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q: a kubelet starts after snapcache, and also without it", lines, want)
	}
}

// The services stay isolated from the rest of the system. The threshold is ten times the number
// that `systemd-analyze security` prints.
func TestUnitsExposure(t *testing.T) {
	for _, tc := range []struct{ unit, threshold string }{
		{"snapcache.service", "13"}, {"snapcache-snapshot.service", "3"}, {"snapcache@.service", "13"}, {"snapcache-snapshot@.service", "3"},
	} {
		path, err := filepath.Abs(tc.unit)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), analyze(t), "security", "--no-pager", "--offline=true", "--threshold="+tc.threshold, path).CombinedOutput()
		if err != nil {
			t.Errorf("%s: exposed above %s: %v\n%s", tc.unit, tc.threshold, err, out)
		}
	}
}

// Other parts of the project rely on these settings.
func TestUnitSettings(t *testing.T) {
	for _, tc := range []struct {
		unit   string
		wanted []string
	}{
		{"snapcache.service", []string{
			"Type=notify",
			"ExecStart=/usr/bin/snapcache run --config /etc/snapcache/agent.yaml",
			"ExecReload=/usr/bin/snapcache reload",
			"StateDirectory=snapcache",      // $STATE_DIRECTORY: the default path of the database
			"StateDirectoryMode=0700",       // only the agent's user reads the database
			"RuntimeDirectory=snapcache",    // $RUNTIME_DIRECTORY: the default path of the socket
			"RuntimeDirectoryPreserve=yes",  // or systemd would remove the socket with the service
			"RestartPreventExitStatus=2",    // the exit code for usage and configuration
			"Environment=GOTRACEBACK=crash", // or a panic would have that exit code
			"SystemCallErrorNumber=EPERM",   // or one refused call would end the agent
			"StartLimitIntervalSec=0",       // a limit would end the restarts, and refuse the start after a mistake is mended
			"RestartSec=10",
			"Environment=KUBECONFIG=%d/kubeconfig",
			// For the server, metrics.address and kubernetesAPI; for changes of the network.
			"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
		}},
		{"snapcache.socket", []string{
			"ListenStream=/run/snapcache/snapcache.sock", // in $RUNTIME_DIRECTORY
			"SocketMode=0660",
			"SocketGroup=snapcache",
			"TriggerLimitBurst=10", // or a waiting client would restart a service with a mistake for ever
		}},
	} {
		lines := settings(t, tc.unit)
		for _, want := range tc.wanted {
			if !slices.Contains(lines, want) {
				t.Errorf("%s: %s is missing", tc.unit, want)
			}
		}
	}
	for _, line := range settings(t, "snapcache.service") {
		if strings.Contains(line, "network-online.target") {
			t.Errorf("%s: the service must start without a network", line)
		}
		if strings.HasPrefix(line, "PrivateNetwork=") || strings.HasPrefix(line, "IPAddressDeny=") || strings.HasPrefix(line, "SocketBindDeny=") {
			t.Errorf("%s: the agent connects to any server, and listens on loopback", line)
		}
		if strings.HasPrefix(line, "ProcSubset=") {
			t.Errorf("%s: it would hide /proc/sys/kernel/random/boot_id", line)
		}
	}
}

// The templates differ from the units of the first cluster in names and paths alone.
func TestTemplates(t *testing.T) {
	forCluster := strings.NewReplacer(
		"snapcache.service", "snapcache@%i.service", "snapcache.socket", "snapcache@%i.socket",
		"/etc/snapcache/", "/etc/snapcache/%i/", "/run/snapcache/", "/run/snapcache/%i/",
		"StateDirectory=snapcache", "StateDirectory=snapcache/%i", "RuntimeDirectory=snapcache", "RuntimeDirectory=snapcache/%i",
		// Without an option it would ask the first cluster's agent.
		"/usr/bin/snapcache reload", "/usr/bin/snapcache reload --socket /run/snapcache/%i/snapcache.sock",
		"LoadCredential=snapcache.key", "LoadCredential=snapcache.key:snapcache@%i.key",
	)
	for _, name := range templates {
		want, got := settings(t, strings.Replace(name, "@", "", 1)), settings(t, name)
		if len(want) != len(got) {
			t.Errorf("%s: %d settings, want %d", name, len(got), len(want))
			continue
		}
		for i := range want {
			if strings.HasPrefix(want[i], "Description=") && strings.Contains(got[i], "%i") {
				continue
			}
			if want := forCluster.Replace(want[i]); got[i] != want {
				t.Errorf("%s: got %s, want %s", name, got[i], want)
			}
		}
	}
}
