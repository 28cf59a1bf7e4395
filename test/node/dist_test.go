package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// Two versions, the second of which follows the first.
const (
	oldVersion = "v0.1.0-rc.1"
	newVersion = "v0.1.0"
)

// dists holds the directories that [dist] built, by version.
var dists = struct {
	sync.Mutex
	dir   string
	byVer map[string]string
}{byVer: map[string]string{}}

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(dists.dir)
	os.Exit(code)
}

// dist returns the directory of a version's packages, and builds it on the first call.
func dist(t *testing.T, version string) string {
	t.Helper()
	dists.Lock()
	defer dists.Unlock()
	if path, ok := dists.byVer[version]; ok {
		return path
	}
	if dists.dir == "" {
		var err error
		dists.dir, err = os.MkdirTemp("", "snapcache-dist-")
		require.NoError(t, err)
	}
	root := harness.Root(t)
	path := filepath.Join(dists.dir, version)
	platforms := []string{"amd64"}
	if version == newVersion {
		platforms = append(platforms, "darwin-amd64", "darwin-arm64", "windows-amd64")
	}
	makeDist(t, root, path, version, platforms)
	dists.byVer[version] = path
	return path
}

// makeDist builds the packages and archives of a source tree for some platforms.
func makeDist(t *testing.T, tree, path, version string, platforms []string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), filepath.Join(tree, "packaging", "dist.sh"), platforms...)
	cmd.Env = append(append(os.Environ(), "DIST="+path, "VERSION="+version), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "dist.sh:\n%s", out)
}

// one returns the only file that matches, and fails if there are more or none.
func one(t *testing.T, pattern ...string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(pattern...))
	require.NoError(t, err)
	require.Len(t, paths, 1, "%s", filepath.Join(pattern...))
	return paths[0]
}
