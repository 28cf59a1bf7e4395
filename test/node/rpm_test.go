package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestRPM installs, upgrades and removes the rpm in a root directory in which no systemd runs, as an image is
// built: with its scripts, which must create the user and keep a changed configuration.
func TestRPM(t *testing.T) {
	needs(t, true, "rpm", "debootstrap")
	root := filepath.Join(t.TempDir(), "root")
	output(t, "cp", "-a", "--reflink=auto", debian(t), root)
	rpm := func(args ...string) {
		t.Helper()
		// The root is Debian's, whose packages rpm does not know.
		output(t, append([]string{"rpm", "--root=" + root, "--force-debian", "--nodeps"}, args...)...)
	}
	inside := func(path string) string { return filepath.Join(root, path) }
	rpm("--install", one(t, dist(t, oldVersion), "*.rpm"))
	require.Contains(t, output(t, "chroot", root, "snapcache", "version"), oldVersion)
	require.Contains(t, output(t, "chroot", root, "id", "snapcache"), "(snapcache)")

	require.NoError(t, os.WriteFile(inside(configPath), []byte(agentConfig), 0o600))
	rpm("--upgrade", one(t, dist(t, newVersion), "*.rpm"))
	require.Contains(t, output(t, "chroot", root, "snapcache", "version"), newVersion+" ")
	require.Equal(t, agentConfig, string(harness.ReadFile(t, inside(configPath))))
	require.FileExists(t, inside("/usr/lib/systemd/system/snapcache@.service"))

	rpm("--erase", "snapcache")
	require.NoFileExists(t, inside("/usr/bin/snapcache"))
	require.FileExists(t, inside(configPath)+".rpmsave")
	require.Error(t, exec.CommandContext(t.Context(), "rpm", "--root="+root, "--query", "snapcache").Run())
}
