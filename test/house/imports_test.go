package house_test

import (
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/snapcache/snapcache"

// listPackages returns a line for each package of the module, in a format of go list.
func listPackages(t *testing.T, format string) string {
	cmd := exec.Command("go", "list", "-f", format, "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// TestImports checks the rules that hold for all packages of the module: one package deals with
// bbolt, a folder "internal" is below the package that it belongs to, the listeners of the Kubernetes
// API need neither a database nor the other API, and the agent needs no informers.
func TestImports(t *testing.T) {
	const boltfile, serving = module + "/store/bolt/internal/boltfile", module + "/kubeapi/serving"
	notServing := []string{module + "/store/bolt", module + "/localapi"}
	packages := listPackages(t,
		`{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{range .TestImports}} test:{{.}}{{end}}{{range .XTestImports}} test:{{.}}{{end}}`)
	const informer, example = module + "/informer", module + "/examples/"
	for _, pkg := range append(notServing, boltfile, serving, informer) {
		require.Contains(t, packages, pkg+" ")
	}
	for line := range strings.Lines(packages) {
		pkg, imports, _ := strings.Cut(line, " ")
		for _, path := range strings.Fields(imports) {
			path, isTest := strings.CutPrefix(path, "test:")
			imported := pkg + " imports " + path
			isBbolt := path == "go.etcd.io/bbolt" || strings.HasPrefix(path, "go.etcd.io/bbolt/")
			require.False(t, isBbolt && !isTest && pkg != boltfile, "%s, which only %s may", imported, boltfile)
			require.False(t, strings.HasPrefix(pkg, path+"/internal/"), "%s, which is above it", imported)
			programs := strings.HasPrefix(pkg, informer+"/") || strings.HasPrefix(pkg, example)
			require.False(t, path == informer && !isTest && !programs, "%s, which is for other programs", imported)
			require.False(t, pkg == serving && !isTest && slices.Contains(notServing, path), imported)
		}
	}
}

// TestAgentImports checks that the packages under agent/internal that are on a level do not import
// each other: what all of them need is below collection.
func TestAgentImports(t *testing.T) {
	const internal = module + "/agent/internal/"
	shared := map[string][]string{"collection": nil}
	task := []string{"collection"}
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
		delete(shared, dir.Name())
		for _, path := range slices.Concat(pkg.Imports, pkg.TestImports, pkg.XTestImports) {
			if name, ok := strings.CutPrefix(path, internal); ok {
				require.Contains(t, allowed, name, "agent/internal/%s imports agent/internal/%s", dir.Name(), name)
			}
		}
	}
	require.Empty(t, shared, "packages that do not exist")
}

// TestAgentSize limits the size of agent: what is done to collections belongs under
// agent/internal.
func TestAgentSize(t *testing.T) {
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
