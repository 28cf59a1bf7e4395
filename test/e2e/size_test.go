package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

const (
	manyPods = 20_000

	// The limit of a process's peak memory, mapped files included.
	firstSyncMB = 80
	restartMB   = 60
	dumpMB      = 60
	// Old and new generation are both in the file, which is mapped.
	relistMB = 120
)

// TestTwentyThousandPods measures the cost of 20,000 pods of 10 KB: memory during the first sync,
// after a restart and during a dump, and the time from a start to the first answer.
func TestTwentyThousandPods(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.SeedPodsDirect(t.Context(), cp, manyPods))
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: pods", commitInterval: "1s", more: "kubernetesAPI: {address: '" + harness.FreeAddress(t) + "'}"})

	t.Run("first sync", func(t *testing.T) {
		a := x.in(t).start()
		started := time.Now()
		c := a.awaitCaughtUp(anywhere("pods"))["pods"]
		took := time.Since(started)
		require.EqualValues(t, manyPods, c.Objects)
		peak := a.peak()
		t.Logf("first sync: %s, peak %.1f MB, %.1f MB of JSON in a file of %.1f MB", took.Round(time.Millisecond), peak, mb(c.Bytes), mb(size(t, x.db)))
		require.Less(t, peak, float64(firstSyncMB), "MB at the peak of the first sync")
		a.stop()
	})
	if t.Failed() {
		return
	}

	for _, format := range []string{"ndjson", "json"} {
		t.Run("dump from the file as "+format, func(t *testing.T) {
			x.in(t).dumpMany(format)
		})
	}

	t.Run("restart", func(t *testing.T) {
		x := x.in(t)
		a := x.start()
		c := a.awaitCaughtUp(anywhere("pods"))["pods"]
		require.EqualValues(t, manyPods, c.Objects)
		require.Zero(t, c.Lists)
		t.Logf("caught up: peak %.1f MB", a.peak())
		x.dumpMany("ndjson")
		t.Logf("after a dump through the socket: peak %.1f MB", a.peak())
		require.Less(t, a.peak(), float64(restartMB), "MB at the peak after a restart and a dump")
		a.stop()
	})

	t.Run("killed in a relist", func(t *testing.T) {
		x := x.in(t)
		x.configure(settings{kubeconfig: x.kubeconfig, resources: "- {resource: pods, transform: {drop: [status]}}", commitInterval: "1s"})
		a := x.start()
		a.await("the list is halfway", func(s *localapi.Status) string {
			if read := s.Collections[0].ListRead; read < manyPods/2 {
				return fmt.Sprintf("%d are read", read)
			}
			return ""
		})
		a.kill()
		c := x.stored().Collections[0]
		require.True(t, c.Synced)
		require.EqualValues(t, manyPods, c.Objects)
		require.Equal(t, "initial", c.ListReason, "nothing of the new list may be seen")
		x.dumpMany("ndjson")

		a = x.start()
		c = a.awaitListed("scope-changed", "pods")["pods"]
		require.EqualValues(t, manyPods, c.Objects)
		t.Logf("relist of everything: peak %.1f MB, %.1f MB of JSON in a file of %.1f MB", a.peak(), mb(c.Bytes), mb(size(t, x.db)))
		require.Less(t, a.peak(), float64(relistMB), "MB at the peak of a relist that changes everything")
		a.stop()
	})

	t.Run("first answer", func(t *testing.T) {
		x := x.in(t)
		few := newSite(t, settings{kubeconfig: x.kubeconfig, resources: "- {resource: pods, namespaces: [shop-0000]}"})
		a := few.start()
		a.awaitCaughtUp(anywhere("pods@shop-0000"))
		a.stop()
		fast, slow := few.firstAnswer(), x.firstAnswer()
		t.Logf("from exec to the first answer: %s with 200 pods, %s with %d", fast, slow, manyPods)
		require.Less(t, slow, time.Second)
	})
}

// firstAnswer returns the median time from exec to the first answer on the socket.
func (x *site) firstAnswer() time.Duration {
	x.t.Helper()
	const runs = 7
	took := make([]time.Duration, 0, runs)
	for range runs {
		started := time.Now()
		a := x.start()
		for {
			s, err := a.client.Status(x.t.Context())
			if err == nil {
				require.True(x.t, s.Collections[0].Synced)
				break
			}
			if time.Since(started) > patience {
				x.t.Fatalf("no answer: %v", err)
			}
			time.Sleep(time.Millisecond) // the measured time is far longer
		}
		took = append(took, time.Since(started))
		a.stop()
	}
	slices.Sort(took)
	return took[runs/2].Round(100 * time.Microsecond)
}

// dumpMany dumps all pods and measures the peak memory of the process.
func (x *site) dumpMany(format string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	cmd := x.command(ctx, "dump", "pods", "-o", format, "--config", x.config)
	out, err := cmd.StdoutPipe()
	require.NoError(x.t, err)
	started := time.Now()
	require.NoError(x.t, cmd.Start())
	peak := 0.0
	counted := &counter{}
	// A pipe holds 64 KB, so the process can't exit before the last of these measurements, except
	// for that much.
	for buf := bufio.NewReaderSize(out, 256<<10); err == nil; {
		peak = max(peak, peakOf(x.t, cmd.Process.Pid))
		_, err = io.CopyN(counted, buf, 256<<10)
	}
	require.ErrorIs(x.t, err, io.EOF)
	require.NoError(x.t, cmd.Wait())
	require.Equal(x.t, manyPods, counted.objects)
	x.t.Logf("dump -o %s: %.1f MB in %s, peak %.1f MB", format, mb(counted.bytes), time.Since(started).Round(time.Millisecond), peak)
	require.Less(x.t, peak, float64(dumpMB), "MB at the peak of the dump")
}

// counter counts the objects written to it, by a field that each pod has once.
type counter struct {
	bytes   int64
	objects int
	rest    []byte // the end of the last write, which may hold the first part of the field
}

var onePerPod = []byte(`"schedulerName":`)

// Write implements io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	c.bytes += int64(len(b))
	c.rest = append(c.rest, b...)
	c.objects += bytes.Count(c.rest, onePerPod)
	c.rest = append(c.rest[:0], c.rest[max(0, len(c.rest)-len(onePerPod)+1):]...)
	return len(b), nil
}

// peak returns the agent's peak memory, in MB.
func (a *agent) peak() float64 {
	a.t.Helper()
	return peakOf(a.t, a.Cmd.Process.Pid)
}

var vmHWM = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// peakOf reads a process's peak memory from the kernel: anonymous memory and mapped pages of files.
func peakOf(t *testing.T, pid int) float64 {
	t.Helper()
	b := harness.ReadFile(t, fmt.Sprintf("/proc/%d/status", pid))
	m := vmHWM.FindSubmatch(b)
	if m == nil {
		return 0 // it has exited and waits to be reaped
	}
	kb, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return mb(int64(kb) * 1024)
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}
