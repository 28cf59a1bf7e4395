package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

const (
	// suite is the Debian release that is booted.
	suite = "bookworm"

	// patience is the timeout of a wait: many times what it takes on an idle machine.
	patience = 3 * time.Minute

	// pollEvery is the interval of polls.
	pollEvery = 100 * time.Millisecond
)

// machine is a booted Debian with a systemd of its own.
type machine struct {
	dir    string // its root directory
	name   string
	nspawn *exec.Cmd
	ended  chan struct{} // closed when nspawn has exited
	log    bytes.Buffer  // of nspawn; may be read after ended is closed
	leader int           // the pid of its init
}

// needs skips a test if a program or root is missing; with CI=true it fails.
func needs(t *testing.T, root bool, programs ...string) {
	t.Helper()
	var missing []string
	if root && os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return
	}
	text := "this test needs " + strings.Join(missing, ", ") +
		"; Debian has the programs in systemd-container, debootstrap, dpkg, lintian, man-db, rpm"
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// newMachine creates a fresh Debian, removed when the test ends, and boots it.
func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "snapcache-node-")
	require.NoError(t, err)
	m := &machine{dir: filepath.Join(dir, "root"), name: filepath.Base(dir)}
	t.Cleanup(func() {
		if t.Failed() && m.leader != 0 {
			out, err := m.command(context.Background(), "journalctl", "--no-pager", "-u", "snapcache*", "-n", "60").CombinedOutput()
			t.Logf("the end of its journal (%v):\n%s", err, out)
		}
		m.powerOff(t)
		// nspawn leaves this directory behind if /run is no memory file system.
		_ = os.Remove(filepath.Join("/run/systemd/nspawn/propagate", m.name))
		require.NoError(t, os.RemoveAll(dir))
	})
	out, err := exec.CommandContext(t.Context(), "cp", "-a", "--reflink=auto", debian(t), m.dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	m.boot(t)
	return m
}

// debian returns the path of an installed Debian, and downloads it if there is none yet.
func debian(t *testing.T) string {
	t.Helper()
	root := harness.Root(t)
	path := filepath.Join(root, ".build", "debian", suite)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	begun := path + ".begun"
	require.NoError(t, os.RemoveAll(begun))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	args := []string{"--variant=minbase", "--include=systemd,systemd-sysv,dbus", suite, begun}
	// The mirror from which this machine has its packages, if it runs the same suite.
	site, err := exec.CommandContext(t.Context(), "apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Codename: "+suite).Output()
	if first, _, _ := strings.Cut(string(site), "\n"); err == nil && first != "" {
		args = append(args, first)
	}
	out, err := exec.CommandContext(t.Context(), "debootstrap", args...).CombinedOutput()
	require.NoError(t, err, "debootstrap %v:\n%s", args, out)
	require.NoError(t, os.Rename(begun, path))
	return path
}

// boot starts the machine and waits until its systemd has finished starting.
func (m *machine) boot(t *testing.T) {
	t.Helper()
	m.log.Reset()
	// Not registered with a systemd outside, as there may be none. The network is the host's.
	m.nspawn = exec.Command("systemd-nspawn", "--quiet", "--directory="+m.dir, "--machine="+m.name,
		"--register=no", "--keep-unit", "--console=pipe", "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--boot")
	m.nspawn.Stdout, m.nspawn.Stderr = &m.log, &m.log
	require.NoError(t, m.nspawn.Start())
	m.ended = make(chan struct{})
	go func() {
		defer close(m.ended)
		_ = m.nspawn.Wait() // its log has the reason
	}()
	m.await(t, "the machine's systemd", func() bool {
		select {
		case <-m.ended:
			m.leader = 0
			t.Fatalf("systemd-nspawn could not boot a container here. It needs root's right to mount, and to make namespaces and cgroups:\n%s", m.log.String())
		default:
		}
		var err error
		if m.leader, err = childOf(m.nspawn.Process.Pid); err != nil {
			return false
		}
		// degraded: the container may not run some unit; each test checks its own units.
		out, _ := m.command(t.Context(), "systemctl", "is-system-running", "--wait").Output()
		state := strings.TrimSpace(string(out))
		return state == "running" || state == "degraded"
	})
}

// powerOff shuts the machine down like a press of the power button.
func (m *machine) powerOff(t *testing.T) {
	t.Helper()
	if m.nspawn == nil {
		return
	}
	if m.leader != 0 {
		_ = syscall.Kill(m.leader, syscall.Signal(34+4)) // SIGRTMIN+4
	}
	select {
	case <-m.ended:
	case <-time.After(patience):
		t.Error("the machine did not power off")
		_ = m.nspawn.Process.Kill()
		<-m.ended
	}
	m.nspawn, m.leader = nil, 0
}

// childOf returns the only child of a process.
func childOf(pid int) (int, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(children)))
}

// command returns a command that runs in the machine, as root.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{
		"--target", strconv.Itoa(m.leader), "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--root", "--wd", "--"}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	return cmd
}

// run runs a command in the machine, fails if the command does, and returns its output.
func (m *machine) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return strings.TrimSpace(string(harness.Output(t, m.command(ctx, args...))))
}

// try runs a command in the machine.
func (m *machine) try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := m.command(ctx, args...).CombinedOutput()
	return string(out), errors.Join(err, ctx.Err())
}

// write writes a file in the machine, owned by root.
func (m *machine) write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	path = filepath.Join(m.dir, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
	require.NoError(t, os.Chmod(path, mode))
}

// copyIn copies a file into the machine's /root and returns its path there.
func (m *machine) copyIn(t *testing.T, path string) string {
	t.Helper()
	data := harness.ReadFile(t, path)
	inside := filepath.Join("/root", filepath.Base(path))
	m.write(t, inside, string(data), 0o755)
	return inside
}

// await polls until done returns true.
func (m *machine) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(pollEvery) {
		if time.Now().After(deadline) {
			t.Fatalf("still not there after %s: %s", patience, what)
		}
	}
}
