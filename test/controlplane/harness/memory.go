package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// MemoryGroup is a memory cgroup, of either version. Past its limit the kernel kills a program in it. As in a pod, the
// page cache of the files that its programs use counts, and is given up first.
type MemoryGroup struct{ dir, kills string }

// NewMemoryGroup makes a cgroup with a limit in bytes; nil if this machine does not let the test. It is removed when the
// test has ended, and its programs have to end before that.
func NewMemoryGroup(t *testing.T, bytes int64) *MemoryGroup {
	t.Helper()
	for _, at := range []struct{ dir, limit, kills string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"},
		{"/sys/fs/cgroup", "memory.max", "memory.events"},
	} {
		group, err := os.MkdirTemp(at.dir, "snapcache-test-")
		if err != nil {
			continue
		}
		if os.WriteFile(filepath.Join(group, at.limit), []byte(strconv.FormatInt(bytes, 10)), 0o600) != nil {
			require.NoError(t, os.Remove(group))
			continue
		}
		t.Cleanup(func() { require.NoError(t, os.Remove(group)) })
		return &MemoryGroup{group, filepath.Join(group, at.kills)}
	}
	return nil
}

// Command returns a command that runs in the cgroup; of no group, anywhere.
func (g *MemoryGroup) Command(name string, args ...string) *exec.Cmd {
	if g == nil {
		return exec.Command(name, args...)
	}
	return exec.Command("sh", append([]string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs"), name}, args...)...)
}

// Add moves a process into the cgroup.
func (g *MemoryGroup) Add(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600))
}

var killCount = regexp.MustCompile(`(?m)^oom_kill (\d+)$`)

// Kills returns how many programs the kernel has killed.
func (g *MemoryGroup) Kills(t *testing.T) int {
	t.Helper()
	found := killCount.FindSubmatch(ReadFile(t, g.kills))
	require.NotNil(t, found, g.kills)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}

// OwnMemory returns the bytes of a process that are its own, and not of a file, with its page tables; 0 if it has ended.
func OwnMemory(pid int) (bytes int64) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && (f[0] == "RssAnon:" || f[0] == "VmPTE:") {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			bytes += kib << 10
		}
	}
	return bytes
}
