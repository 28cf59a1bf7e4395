package kubeapi

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/discovery"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestServe reads a database file and a snapshot of an agent that has ended, and a support bundle, at the
// address and on the socket of `snapcache serve`, which leaves nothing when it is interrupted.
func TestServe(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared.plane)
	config := filepath.Join(s.dir, "agent.yaml")
	made, err := exec.Command(harness.Snapcache, "snapshot", "create", "--config", config).Output()
	require.NoError(t, err)
	file, _, _ := strings.Cut(string(made), ": ")
	s.stop()
	const args = "get pods,widgets,configmaps,nodes -n ns -l !zone,!round" // other tests make nodes with these labels
	want := s.kubectl(s.server, args+" -o json")
	require.Zero(t, want.code, want.stderr)
	for _, tc := range []struct{ name, from string }{
		{"database", filepath.Join(s.dir, "cache.db")}, {"snapshot", filepath.Base(file)}, {"support bundle", s.supportBundle(t)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			serving, end := s.serve(t, "--from", tc.from, "--config", config)
			kubeconfig := serving(`kubectl --kubeconfig (\S+) get all -A\n`)
			require.Equal(t, want, s.kubectl(kubeconfig, args+" -o json"))
			require.Equal(t, s.kubectl(s.server, args).settled(), s.kubectl(kubeconfig, args).settled())
			info, err := os.Stat(filepath.Dir(kubeconfig))
			require.NoError(t, err)
			require.Equal(t, os.ModeDir|0o700, info.Mode())
			watch := s.startKubectl(t.Context(), kubeconfig, "get pods -n ns -w")
			require.Eventually(t, func() bool { return watch.stdout.String() != "" }, patience, pollEvery)
			end()
			watch.wait()
			require.NoDirExists(t, filepath.Dir(kubeconfig))
		})
		t.Run(tc.name+" on a socket", func(t *testing.T) {
			socket := filepath.Join(s.dir, "served.sock")
			serving, end := s.serve(t, "--from", tc.from, "--config", config, "--socket", socket)
			printed := strings.Fields(serving(`snapcache (get all -A --socket \S+)\n`))
			all := s.startProgram(t.Context(), "", harness.Snapcache, printed...).wait()
			require.Zero(t, all.code, all.stderr)
			got := s.startProgram(t.Context(), "", harness.Snapcache, append(strings.Fields(args), "-o", "json", "--socket", socket)...).wait()
			require.Equal(t, want, got)
			info, err := os.Stat(socket)
			require.NoError(t, err)
			require.Equal(t, os.ModeSocket|0o600, info.Mode())
			end()
			require.NoFileExists(t, socket)
		})
	}
}

// supportBundle makes a support bundle in the form that Troubleshoot gives it: for each resource an array of
// objects without their kinds, and what the server serves. Custom resources have kinds.
func (s *site) supportBundle(t *testing.T) string {
	t.Helper()
	config := restConfig(t, s.server)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	_, served, err := client.ServerGroupsAndResources()
	require.NoError(t, err)
	files := map[string]any{"resources": served, "pods-errors": map[string]string{"other": "forbidden"}}
	for resource, name := range map[string]string{
		"pods": "pods/ns", "configmaps": "configmaps/ns", "nodes": "nodes", "customresourcedefinitions": "custom-resource-definitions",
		"widgets": "custom-resources/widgets.example.com/ns",
	} {
		out := s.kubectl(s.server, "get -n ns --show-managed-fields -o json "+resource)
		require.Zero(t, out.code, out.stderr)
		var list struct{ Items []map[string]json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(out.stdout), &list))
		for _, o := range list.Items {
			if resource != "widgets" {
				delete(o, "kind")
				delete(o, "apiVersion")
			}
		}
		files[name] = list.Items
	}
	path := filepath.Join(s.dir, "support-bundle.tar.gz")
	f, err := os.Create(path)
	require.NoError(t, err)
	packed := gzip.NewWriter(f)
	archive := tar.NewWriter(packed)
	for name, content := range files {
		body, err := json.MarshalIndent(content, "", "  ")
		require.NoError(t, err)
		require.NoError(t, archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: "support-bundle/cluster-resources/" + name + ".json", Mode: 0o600, Size: int64(len(body)),
		}))
		_, err = archive.Write(body)
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(archive.Close(), packed.Close(), f.Close()))
	return path
}

// serve starts `snapcache serve`. serving waits until it has printed the usage that a pattern matches, and
// returns what its group does; end interrupts it.
func (s *site) serve(t *testing.T, args ...string) (serving func(pattern string) string, end func()) {
	t.Helper()
	r := s.startProgram(t.Context(), "", harness.Snapcache, append([]string{"serve"}, args...)...)
	serving = func(pattern string) (found string) {
		t.Helper()
		require.Eventually(t, func() bool {
			match := regexp.MustCompile(pattern).FindStringSubmatch(r.stderr.String())
			if match != nil {
				found = match[1]
			}
			return match != nil
		}, patience, pollEvery, "%s has printed %s", r.cmd, &r.stderr)
		return found
	}
	return serving, func() {
		t.Helper()
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
		ended := r.wait()
		require.Zero(t, ended.code, ended.stderr)
	}
}
