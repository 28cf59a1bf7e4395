package library

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// moduleOf returns a copy of a module as the module proxy serves it.
func moduleOf(t *testing.T, path, version string) string {
	t.Helper()
	var m struct{ Dir string }
	require.NoError(t, json.Unmarshal(command(t, t.TempDir(), "go", "mod", "download", "-json", path+"@"+version), &m))
	return copyOf(t, m.Dir)
}

// copyOf returns a copy of a directory, which the test may write to.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// buildDurable builds the main package pkg of the module in dir with durable informers.
func buildDurable(t *testing.T, dir, pkg string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "program")
	command(t, dir, "go", slices.Concat([]string{"build", "-trimpath"}, overlayFlags(t, dir, pkg), []string{"-o", binary, pkg})...)
	return binary
}

// overlayFlags returns the flags of such a build, as docs/unmodified.md says.
func overlayFlags(t *testing.T, dir, pkg string) []string {
	t.Helper()
	root := harness.Root(t)
	overlay := filepath.Join(t.TempDir(), "snapcache-overlay")
	command(t, root, "go", "build", "-o", overlay, "./cmd/snapcache-overlay")
	return strings.Fields(string(command(t, dir, overlay, "-source", root, pkg)))
}

// command runs a command to its end in a directory, and returns its output.
func command(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	return harness.Output(t, cmd)
}
