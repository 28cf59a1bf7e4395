package library

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/informer/unmodified"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestUnmodifiedProgram builds a program on client-go with the flags of snapcache-overlay, kills it and starts it
// again, with its server and without. Only with a directory are its informers durable.
func TestUnmodifiedProgram(t *testing.T) {
	const ns = "unmodified"
	c := clientset(t, ns)
	binary := buildDurable(t, copyOf(t, filepath.Join(harness.Root(t), "test", "library", "testdata", "unmodified")), ".")
	kubeconfig := harness.Kubeconfig(t, shared, controlplane.Admin)
	network := harness.NetworkOf(t, kubeconfig)
	dir := filepath.Join(t.TempDir(), "cache")
	start := func(env ...string) *harness.Process {
		cmd := exec.Command(binary, "-kubeconfig", kubeconfig, "-namespace", ns)
		cmd.Env = append(os.Environ(), env...)
		return harness.Start(t, cmd)
	}
	durable := unmodified.DirVariable + "=" + dir
	put(t, c, ns, "a", "1", nil)
	put(t, c, ns, "b", "1", nil)
	both := func(lines ...string) (all []string) {
		for _, l := range lines {
			all = append(all, "first "+l, "second "+l)
		}
		return all
	}

	p := start()
	await(t, p, both("added a 1 true", "added b 1 true")...)
	p.Kill()
	require.NotContains(t, p.Output(), "reason=initial", "the lists are client-go's")
	require.NoDirExists(t, dir)

	p = start(durable)
	await(t, p, both("added a 1 true", "added b 1 true")...)
	require.Equal(t, 2, strings.Count(p.Output(), "reason=initial"), p.Output())
	p.Kill() // a list is durable before any handler is called

	put(t, c, ns, "a", "2", nil)
	remove(t, c, ns, "b")
	p = start(durable)
	await(t, p, both("added a 1 true", "added b 1 true", "updated a 2", "deleted unmodified/b")...)
	require.NotContains(t, p.Output(), "reason=", "a resume lists nothing")
	require.NoError(t, p.Stop())

	network.Down()
	p = start(durable)
	await(t, p, both("added a ")...)
	second := start(durable)
	await(t, second, "reason=in-use")
	second.Kill()
	p.Kill()
}
