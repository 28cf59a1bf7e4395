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

const unitFile = "snapcache.service"

// settings are the lines of the unit file that set something, as "ExecStart=/usr/bin/snapcache ...".
func settings(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(unitFile)
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

// TestUnitVerifies has systemd itself read the unit; whatever it says about it is an error.
func TestUnitVerifies(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if errors.Is(err, exec.ErrNotFound) {
		const missing = "systemd-analyze is not installed: it is in the package systemd (apt-get install systemd, dnf install systemd)"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	} else if err != nil {
		t.Fatal(err)
	}

	data, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	// It checks that the program exists, so this one stands in for snapcache.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const program = "ExecStart=/usr/bin/snapcache "
	if bytes.Count(data, []byte(program)) != 1 {
		t.Fatalf("no single %q in the unit", program)
	}
	data = bytes.Replace(data, []byte(program), []byte("ExecStart="+self+" "), 1)
	// systemd takes a unit's name from the file's, so the copy has the same one.
	unit := filepath.Join(t.TempDir(), unitFile)
	if err := os.WriteFile(unit, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestUnitSettings has the settings that others rely on.
func TestUnitSettings(t *testing.T) {
	lines := settings(t)
	for _, want := range []string{
		"Type=notify",
		"ExecStart=/usr/bin/snapcache run --config /etc/snapcache/agent.yaml",
		"StateDirectory=snapcache",      // $STATE_DIRECTORY: the default path of the database
		"StateDirectoryMode=0700",       // the design's promise
		"RuntimeDirectory=snapcache",    // $RUNTIME_DIRECTORY: the default path of the socket
		"RestartPreventExitStatus=2",    // the exit code for usage and configuration
		"Environment=GOTRACEBACK=crash", // or a panic would end with that code
		"SystemCallErrorNumber=EPERM",   // or one refused call would end the agent
		"StartLimitIntervalSec=0",       // or a node with a bad morning would stay down
		"Environment=KUBECONFIG=%d/kubeconfig",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, line := range lines {
		if strings.Contains(line, "network-online.target") {
			t.Errorf("%s: the service must come up without a network", line)
		}
		if strings.HasPrefix(line, "ProcSubset=") {
			t.Errorf("%s: would hide /proc/sys/kernel/random/boot_id", line)
		}
	}
}
