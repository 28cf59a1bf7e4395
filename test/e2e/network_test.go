package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestRetryAfterNetwork: a server asks for an hour, and a new address or a new route of the node ends the wait. The
// agent is in a network namespace of its own, in which the server's address leads to the one outside.
func TestRetryAfterNetwork(t *testing.T) {
	t.Parallel()
	namespace := fmt.Sprintf("snapcache-%d", os.Getpid())
	ip := func(args ...string) ([]byte, error) {
		return exec.CommandContext(t.Context(), "ip", args...).CombinedOutput()
	}
	if out, err := ip("netns", "add", namespace); err != nil {
		t.Skipf("a network namespace needs root and ip: %v: %s", err, out)
	}
	t.Cleanup(func() {
		out, err := exec.Command("ip", "netns", "del", namespace).CombinedOutput() //nolint:noctx // the test's context has ended
		require.NoError(t, err, "%s", out)
	})
	change := func(args ...string) {
		t.Helper()
		out, err := ip(append([]string{"-n", namespace}, args...)...)
		require.NoError(t, err, "%s", out)
	}
	change("link", "set", "lo", "up")

	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 5}))
	g := newGateway(t, cp)
	g.delay = 3600
	leadOut(t, namespace, g.Address)
	x := newSite(t, settings{kubeconfig: g.Kubeconfig, resources: "- resource: configmaps"})
	x.program = filepath.Join(t.TempDir(), "snapcache")
	script := fmt.Sprintf("#!/bin/sh\nexec ip netns exec %s %s \"$@\"\n", namespace, harness.Snapcache)
	require.NoError(t, os.WriteFile(x.program, []byte(script), 0o700)) //nolint:gosec // it is a program
	a := x.start()
	a.awaitCaughtUp(anywhere("configmaps"))
	for _, add := range [][]string{
		{"address", "add", "192.0.2.1/32", "dev", "lo"},
		{"route", "add", "198.51.100.0/24", "dev", "lo"},
	} {
		g.answer(func(*http.Request) int { return http.StatusTooManyRequests })
		g.Down()
		g.Up() // the watch ends
		a.await("it waits", func(s *localapi.Status) string {
			if c := collections(s)["configmaps"]; c.CaughtUp || c.ProblemKind != "throttled" {
				return c.Phase + " " + c.Problem
			}
			return ""
		})
		g.answer(nil)
		change(add...)
		a.awaitCaughtUp(anywhere("configmaps"))
	}
	a.stop()
}

// leadOut makes connections to an address in a network namespace connections to the same address outside.
func leadOut(t *testing.T, namespace, address string) {
	t.Helper()
	var l net.Listener
	inside := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		f, err := os.Open("/run/netns/" + namespace)
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			_ = f.Close() // opened for reading
		}
		if err == nil {
			l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		}
		inside <- err
	}()
	require.NoError(t, <-inside)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close() // an error is one of Accept, too
		wg.Wait()
	})
	pipe := func(from net.Conn) {
		defer from.Close()
		to, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return
		}
		wg.Go(func() {
			_, _ = io.Copy(from, to) // ends with either connection
			_ = from.Close()
		})
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}
	wg.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { pipe(from) })
		}
	})
}
