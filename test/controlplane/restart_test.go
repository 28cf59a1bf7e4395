//go:build unix

package controlplane_test

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/snapcache/snapcache/test/controlplane"
)

// holdWatches opens watches that stay open until the server ends them, and returns how many
// have ended.
func holdWatches(t *testing.T, admin *kubernetes.Clientset, count int) <-chan struct{} {
	t.Helper()
	ended := make(chan struct{}, count)
	for range count {
		w, err := admin.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer w.Stop()
			for range w.ResultChan() { //nolint:revive // until it ends
			}
			ended <- struct{}{}
		}()
	}
	return ended
}

// TestRestartWithWatches restarts the apiserver while clients hold watches: it ends them, and
// is not killed for them.
func TestRestartWithWatches(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	const watches = 50
	ended := holdWatches(t, clientOf(t, cp, controlplane.Admin), watches)
	pid := cp.APIServerPID()
	start := time.Now()
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted in %s", time.Since(start))
	if strings.Contains(log.String(), "killed") {
		t.Errorf("log of the control plane: %s", log.String())
	}
	for range watches {
		<-ended
	}
	if now := cp.APIServerPID(); now == 0 || now == pid {
		t.Errorf("the apiserver is process %d, was %d", now, pid)
	}
}

// TestRestartOfStuck restarts an apiserver that does not react to SIGTERM: it is killed after
// the grace, and started.
func TestRestartOfStuck(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: &log, StopGrace: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	pid := cp.APIServerPID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := cp.APIServerPID(); now == 0 || now == pid {
		t.Errorf("the apiserver is process %d, was %d", now, pid)
	}
	if !strings.Contains(log.String(), "killed") {
		t.Errorf("log of the control plane: %q, want that it was killed", log.String())
	}
	if err := syscall.Kill(cp.APIServerPID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := cp.StopAPIServer(t.Context()); !errors.Is(err, controlplane.ErrKilled) {
		t.Errorf("stop of a stuck apiserver: %v, want %v", err, controlplane.ErrKilled)
	}
}
