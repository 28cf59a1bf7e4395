package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run runs one command line and returns what it printed.
func run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	app := newApp()
	app.Writer = &out
	err := app.RunContext(ctx, append([]string{"controlplane"}, args...))
	return out.String(), err
}

// start starts a control plane in a folder, and waits until it takes commands. ended gets the error of its end.
func start(t *testing.T, dir string, args ...string) (ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() {
		out, err := run(ctx, append([]string{"start", "--dir", dir}, args...)...)
		t.Log(out)
		end <- err
	}()
	t.Cleanup(cancel)
	for {
		if _, err := os.Stat(filepath.Join(dir, socketFile)); err == nil {
			return end
		}
		select {
		case err := <-end:
			t.Fatalf("start: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestCommands starts a control plane as a user would, acts on it with the other
// commands and stops it.
func TestCommands(t *testing.T) {
	t.Parallel()
	// Not t.TempDir, whose path is too long for a unix socket on some systems.
	dir, err := os.MkdirTemp("", "cp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if _, err := run(t.Context(), "compact", "--dir", dir); err == nil || !strings.Contains(err.Error(), "no control plane runs") {
		t.Errorf("compact of nothing: %v", err)
	}

	ended := start(t, dir, "--pods", "6", "--namespaces", "2")
	backup := filepath.Join(dir, "backup")
	for _, c := range []struct{ line, want string }{
		{"kubeconfig --user reader", filepath.Join(dir, "reader.kubeconfig")},
		{"seed --configmaps 3 --direct-pods 10", "seed: done"},
		{"touch --resource configmaps --count 5", "shop-0000/"}, // 2 are kube-system's,
		{"save --to " + backup, "save: done"},
		{"kill-apiserver", "done"},
		{"start-apiserver", "done"},
		{"churn --rate 500 --count 30", "failed 0"},
		{"compact", "done"},
		{"restore --from " + backup, "done"},
	} {
		words := strings.Fields(c.line)
		out, err := run(t.Context(), append([]string{words[0], "--dir", dir}, words[1:]...)...)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: printed %q, want %q (%v)", c.line, out, c.want, err)
		}
	}
	if _, err := run(t.Context(), "start-apiserver", "--dir", dir); err == nil || !strings.Contains(err.Error(), "already running") {
		t.Errorf("start of a running apiserver: %v", err)
	}
	if _, err := run(t.Context(), "stop", "--dir", dir); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("start ended: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, stateFile)); !os.IsNotExist(err) {
		t.Errorf("the state is left behind: %v", err)
	}
}
