package library

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// logged collects the output of a process.
// TestExampleController kills examples/controller and starts it again. The controller processes the
// objects that changed meanwhile and no others, and makes no list.
func TestExampleController(t *testing.T) {
	const ns = "example"
	c, dir := clientset(t, ns), t.TempDir()
	root := harness.Root(t)
	binary := filepath.Join(t.TempDir(), "controller")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./examples/controller")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	kubeconfig := harness.Kubeconfig(t, shared, controlplane.Admin)
	start := func() *harness.Process {
		return harness.Start(t, exec.Command(binary, "-kubeconfig", kubeconfig, "-state", dir))
	}
	wanted := map[string]string{"digest": "wanted"}
	put(t, c, ns, "a", "1", wanted)
	put(t, c, ns, "b", "1", wanted)
	put(t, c, ns, "c", "1", wanted)
	put(t, c, ns, "other", "1", nil)

	p := start()
	await(t, p, "written configmap=example/a", "written configmap=example/b", "written configmap=example/c")
	require.Contains(t, p.Output(), "reason=initial")
	p.Kill() // a list is durable before any handler is called
	require.ElementsMatch(t, []string{"example.a.digest", "example.b.digest", "example.c.digest"}, digests(t, dir))

	put(t, c, ns, "a", "2", wanted)
	remove(t, c, ns, "b")
	put(t, c, ns, "d", "1", wanted)
	p = start()
	await(t, p, "written configmap=example/a", "removed configmap=example/b", "written configmap=example/d")
	p.Kill()
	require.ElementsMatch(t, []string{"example.a.digest", "example.c.digest", "example.d.digest"}, digests(t, dir))
	require.Equal(t, 3, strings.Count(p.Output(), "written")+strings.Count(p.Output(), "removed"), "only what changed:\n%s", p.Output())
	require.NotContains(t, p.Output(), "listed", "a resume lists nothing")
}

func await(t *testing.T, p *harness.Process, lines ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, line := range lines {
			if !strings.Contains(p.Output(), line) {
				return false
			}
		}
		return true
	}, patience, pollEvery, lines)
}

// digests returns the names of the files that the controller has written.
func digests(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".digest") {
			names = append(names, e.Name())
		}
	}
	return names
}
