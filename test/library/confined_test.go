package library

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// confinement is a memory cgroup, of either version. Past its limit the kernel kills a program in it. As in a pod, the
// page cache of the files that its programs use counts, and is given up first.
type confinement struct{ dir, kills string }

// confine makes a cgroup with a limit in bytes; nil if this machine does not let the test.
func confine(t *testing.T, bytes int64) *confinement {
	t.Helper()
	for _, at := range []struct{ dir, limit, kills string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"},
		{"/sys/fs/cgroup", "memory.max", "memory.events"},
	} {
		group := filepath.Join(at.dir, fmt.Sprintf("snapcache-%d-%d", os.Getpid(), bytes))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(group, at.limit), []byte(strconv.FormatInt(bytes, 10)), 0o600) != nil {
			require.NoError(t, os.Remove(group))
			continue
		}
		t.Cleanup(func() { require.NoError(t, os.Remove(group)) }) // its programs have ended
		return &confinement{group, filepath.Join(group, at.kills)}
	}
	return nil
}

// command returns a command that runs in the cgroup.
func (c *confinement) command(name string, args ...string) *exec.Cmd {
	if c == nil {
		return exec.Command(name, args...)
	}
	return exec.Command("sh", append([]string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(c.dir, "cgroup.procs"), name}, args...)...)
}

var killCount = regexp.MustCompile(`(?m)^oom_kill (\d+)$`)

// killed returns how many programs the kernel has killed.
func (c *confinement) killed(t *testing.T) int {
	t.Helper()
	found := killCount.FindSubmatch(harness.ReadFile(t, c.kills))
	require.NotNil(t, found, c.kills)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}

// ownMemory follows the memory of a process that is its own, and not of a file, until it ends.
func ownMemory(p *harness.Process, most *atomic.Int64) {
	status := fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid)
	for p.Running() {
		text, _ := os.ReadFile(status)
		var own int64
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && (f[0] == "RssAnon:" || f[0] == "VmPTE:") {
				kilobytes, _ := strconv.ParseInt(f[1], 10, 64)
				own += kilobytes << 10
			}
		}
		most.Store(max(own, most.Load()))
		time.Sleep(10 * time.Millisecond)
	}
}
