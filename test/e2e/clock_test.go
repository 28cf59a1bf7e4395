package e2e

import (
	"context"
	encoding "encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// clockVariable names the file with the seconds by which the program's wall clock is ahead: 8 bytes.
const clockVariable = "SNAPCACHE_TEST_CLOCK"

// movedNow is a file of package time: what Now adds. The file is mapped, since the runtime calls Now where
// no system call may be made.
const movedNow = `package time

import (
	"syscall"
	"unsafe"
)

var movedBy = mapClock()

func mapClock() []byte {
	path, ok := syscall.Getenv("` + clockVariable + `")
	if !ok {
		return make([]byte, 8)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("the file of the clock: " + err.Error())
	}
	mapped, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("map the file of the clock: " + err.Error())
	}
	return mapped
}

func moved() (seconds int64) { return *(*int64)(unsafe.Pointer(&movedBy[0])) }
`

// buildMoved builds the program with a wall clock that a test can move while it runs: package time of the
// standard library is overlaid with one whose Now adds the number in a file. The monotonic clock and the
// timers are as always.
func buildMoved(t *testing.T) (program string) {
	t.Helper()
	root := harness.Root(t)
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	original := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	source := harness.ReadFile(t, original)
	const reads = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	require.Equal(t, 1, strings.Count(string(source), reads), original)
	text := strings.Replace(string(source), reads, "\tsec, nsec, mono := runtimeNow()\n\tsec += moved()\n\tif mono == 0 {", 1)
	dir := t.TempDir()
	overlay := map[string]string{
		original: filepath.Join(dir, "time.go"),
		filepath.Join(filepath.Dir(original), "moved.go"): filepath.Join(dir, "moved.go"),
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "time.go"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "moved.go"), []byte(movedNow), 0o600))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": overlay})
	require.NoError(t, err)
	overlays := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlays, replace, 0o600))
	program = filepath.Join(dir, "snapcache")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlays, "-o", program, "./cmd/snapcache")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// TestWrongClock starts agents without their server while the wall clock is behind what they have stored,
// and far ahead, and sets it while they run. Nothing is called fresh, and nothing is deleted.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 10, Pods: 5, Namespaces: 1}))
	network := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
	x := newSite(t, settings{
		kubeconfig: network.Kubeconfig,
		resources:  "- resource: configmaps\n- {resource: pods, staleness: {policy: refuse, maxAge: 1h}}",
		more:       "health: {maxStaleness: 1h}\nsnapshots: {interval: 10m}",
	})
	x.program = buildMoved(t)
	clock := filepath.Join(x.dir, "clock")
	x.env = append(x.env, clockVariable+"="+clock)
	set := func(ahead time.Duration) {
		seconds := encoding.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)) //nolint:gosec // as it is read
		// Not truncated: the file is mapped.
		f, err := os.OpenFile(clock, os.O_RDWR|os.O_CREATE, 0o600)
		require.NoError(t, err)
		_, err = f.WriteAt(seconds, 0)
		require.NoError(t, errors.Join(err, f.Close()))
	}
	snapshots := func() int { return len(lines(x.must("snapshot", "list"))) - 1 }
	const year = 365 * 24 * time.Hour

	set(0)
	a := x.start()
	a.requireServers(cp, twoIDs...)
	x.must("snapshot", "create")
	touchAll(t, cp, twoIDs...)
	a.requireServers(cp, twoIDs...)
	first := a.awaitStatus()["configmaps"].HistorySince.RV
	a.stop()
	require.Equal(t, 1, snapshots())
	network.Down()

	// offline waits until the agent knows that there is no server.
	offline := func(a *agent) {
		a.await("the server is away", func(s *localapi.Status) string {
			if s.Agent.Problem == "" {
				return "no problem"
			}
			return ""
		})
	}
	requireStale := func(a *agent, age, words string) {
		t.Helper()
		maps := a.overSocket("/api/v1/configmaps")
		require.Equal(t, age, maps.Header.Get("Age"))
		require.Contains(t, maps.Header.Get("Warning"), words)
		require.Equal(t, 503, a.overSocket("/api/v1/pods").StatusCode, "staleness: refuse")
		require.Equal(t, 503, a.ready())
	}
	requireRight := func(a *agent) {
		t.Helper()
		maps := a.overSocket("/api/v1/configmaps")
		age, err := strconv.Atoi(maps.Header.Get("Age"))
		require.NoError(t, err)
		require.Less(t, age, 600)
		require.Contains(t, maps.Header.Get("Warning"), "the server can't be reached")
		require.Equal(t, 200, a.overSocket("/api/v1/pods").StatusCode)
		require.Equal(t, 200, a.ready())
	}
	for _, behind := range []time.Duration{2 * time.Hour, 26 * year} {
		set(-behind)
		a = x.start()
		offline(a)
		requireStale(a, "2147483648", "of unknown age, as the clock is behind it")
		require.Contains(t, string(x.must("status")), "of unknown age")
		require.True(t, a.awaitStatus()["pods"].AgeUnknown)
		require.Contains(t, string(a.metricsText()), `snapcache_collection_checkpoint_age_seconds{collection="pods"} +Inf`)
		set(0)
		requireRight(a)
		set(-behind)
		requireStale(a, "2147483648", "of unknown age, as the clock is behind it")
		set(0)
		a.stop()
	}

	set(14 * year)
	a = x.start()
	offline(a)
	require.Equal(t, 503, a.overSocket("/api/v1/pods").StatusCode, "staleness: refuse")
	require.Equal(t, 503, a.ready())
	poll(t, "a snapshot of the future is made", nil, func(context.Context) (bool, error) { return snapshots() == 2, nil })
	set(0)
	requireRight(a)
	a.stop()

	network.Up()
	set(11 * time.Minute) // the next one is due, since it counts from the snapshot that is not of the future
	a = x.start()
	a.requireServers(cp, twoIDs...)
	poll(t, "the next snapshot is made, and none is deleted", nil, func(context.Context) (bool, error) { return snapshots() == 3, nil })
	require.NotEmpty(t, lines(x.must("changes", "configmaps", "--since", first)), "the history is whole")
	a.stop()
}
