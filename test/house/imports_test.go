package house_test

import (
	"go/build"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const agentPackage = "github.com/snapcache/snapcache/agent"

// TestAgentImports checks that the packages under agent/internal do not import agent, and that those
// on a level do not import each other: what all of them need is below collection.
func TestAgentImports(t *testing.T) {
	const internal = agentPackage + "/internal/"
	shared := map[string][]string{
		"collection": {"exit", "sleep"},
		"exit":       nil,
		"sleep":      nil,
	}
	task := []string{"collection", "exit", "sleep"}
	dirs, err := os.ReadDir(filepath.Join(root, "agent", "internal"))
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		pkg, err := build.ImportDir(filepath.Join(root, "agent", "internal", dir.Name()), 0)
		require.NoError(t, err)
		allowed, ok := shared[dir.Name()]
		if !ok {
			allowed = task
		}
		for _, path := range slices.Concat(pkg.Imports, pkg.TestImports, pkg.XTestImports) {
			require.NotEqual(t, agentPackage, path, "agent/internal/%s imports agent", dir.Name())
			if name, ok := strings.CutPrefix(path, internal); ok {
				require.Contains(t, allowed, name, "agent/internal/%s imports agent/internal/%s", dir.Name(), name)
			}
		}
	}
}

// TestAgentOnlyWires limits the size of agent: what is done to collections belongs under
// agent/internal.
func TestAgentOnlyWires(t *testing.T) {
	const limit = 1200 // lines, without tests
	files, err := filepath.Glob(filepath.Join(root, "agent", "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	lines := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		lines += strings.Count(string(raw), "\n")
	}
	require.LessOrEqual(t, lines, limit, "move what does not wire to agent/internal")
}
