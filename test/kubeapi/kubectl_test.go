package kubeapi

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/logging/logtest"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// compared are commands whose output is the same from an agent and from a kube-apiserver, up to ages.
// They read objects that no test changes.
var compared = []struct {
	name string
	args string // separated by spaces
	code int    // exit code

	// noObjects is set if the answer contains no objects, so that they can't be stale.
	noObjects bool
}{
	{name: "table", args: "get pods -n ns"},
	{name: "short name", args: "get po -n ns-a"},
	{name: "wide", args: "get pods -n ns -o wide"},
	{name: "yaml", args: "get pods -n ns -o yaml"},
	{name: "json", args: "get deployments -n ns -o json"},
	{name: "managed fields", args: "get pod web-0 -n ns -o yaml --show-managed-fields"},
	{name: "name", args: "get pods,services,configmaps -n ns -o name"},
	{name: "jsonpath", args: "get pods -n ns -o jsonpath={.items[*].status.phase}"},
	{name: "custom columns", args: "get pods -n ns -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName"},
	{name: "label selector", args: "get pods,configmaps,services -A -l app=web,tier=front"},
	{name: "field selector", args: "get pods -A --field-selector spec.nodeName=edge-1,status.phase=Running"},
	{name: "sorted", args: "get pods -n ns --sort-by=.metadata.name"},
	{name: "sorted by a field of the object", args: "get services -n ns --sort-by=.spec.clusterIP"},
	{name: "labels", args: "get pods -n ns --show-labels -L app"},
	{name: "no headers", args: "get pods -n ns --no-headers"},
	{name: "in chunks", args: "get configmaps -n ns --chunk-size=1"},
	{name: "several resources", args: "get po,svc,deploy,cm,endpointslices,jobs,rs,leases,secrets -n ns"},
	{name: "objects by name", args: "get pod/web-0 svc/web -n ns"},
	{name: "nodes", args: "get no edge-1 edge-2 -o wide"},
	{name: "namespaces", args: "get ns ns ns-a empty"},
	{name: "custom resources", args: "get wd -A -o wide"},
	{name: "version of custom resources", args: "get widgets.v1.lab.example.com -n ns -o yaml"},
	{name: "custom resources without columns", args: "get gadgets"},
	{name: "category", args: "get all -n ns"},
	{name: "events", args: "get events -n ns"},
	{name: "events command", args: "events -n ns-a"},
	{name: "events of an object", args: "events -n ns --for pod/web-0"},
	{name: "warnings", args: "events -A --types=Warning"},
	{name: "status", args: "get deployment web -n ns --subresource=status -o yaml"},
	{name: "raw", args: "get --raw /api/v1/namespaces/ns/pods/web-0"},
	{name: "no objects", args: "get pods -n empty"},
	{name: "no such namespace", args: "get pods -n nowhere"},
	{name: "no such object", args: "get pod none -n ns", code: 1},
	{name: "no such resource", args: "get nothings", code: 1, noObjects: true},
	{name: "bad field selector", args: "get pods -n ns --field-selector spec.nothing=x", code: 1, noObjects: true},
	{name: "describe pod", args: "describe pod web-0 -n ns"},
	{name: "describe pods", args: "describe pods -n ns-a"},
	{name: "describe deployment", args: "describe deployment web -n ns"},
	{name: "describe service", args: "describe service web -n ns"},
	{name: "describe node", args: "describe node edge-1"},
	{name: "describe custom resource", args: "describe widget full -n ns"},
	{name: "describe config map", args: "describe cm a -n ns"},
	{name: "describe secret", args: "describe secret password -n ns"},
	{name: "describe job", args: "describe job once -n ns"},
	{name: "version", args: "version -o yaml", noObjects: true},
	{name: "explain", args: "explain pods.spec.containers", noObjects: true},
	{name: "explain a custom resource", args: "explain widgets.spec --recursive", noObjects: true},
	{name: "rollout history", args: "rollout history deployment/web -n ns"},
	{name: "condition that is met", args: "wait pod/web-0 -n ns --for=condition=Ready --timeout=10s"},
	{name: "field that is set", args: "wait node/edge-2 --for=jsonpath={.spec.unschedulable}=true --timeout=10s"},
}

// warning matches what kubectl prints while the agent is not connected.
var warning = regexp.MustCompile(`(?m)^Warning: snapcache: the server can't be reached: this is the state of \S+Z\n`)

// TestKubectl compares the output of kubectl from an agent with that from the kube-apiserver, while
// the agent is connected, and after a restart without a connection. It is not parallel: other tests
// change objects that the agent can't see then.
func TestKubectl(t *testing.T) {
	s := newSite(t, shared.plane)
	t.Run("online", func(t *testing.T) { requireSameOutput(t, s, true) })
	s.link.Down()
	s.requireWarning(true)
	s.stop()
	s.start()
	cache := filepath.Join(s.dir, ".kube", "cache", "discovery")
	require.DirExists(t, cache)
	require.NoError(t, os.RemoveAll(cache)) // a new kubectl has to get all of it from the agent
	t.Run("started offline", func(t *testing.T) { requireSameOutput(t, s, false) })
	s.link.Up()
	s.requireWarning(false)
}

func requireSameOutput(t *testing.T, s *site, online bool) {
	t.Helper()
	for _, c := range compared {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			want, got := s.kubectl(s.server, c.args), s.kubectl(s.cached, c.args)
			require.Equal(t, c.code, want.code, "kubectl %s: %s", c.args, want.stderr)
			warned := warning.MatchString(got.stderr)
			got.stderr = warning.ReplaceAllString(got.stderr, "")
			require.Equal(t, want.settled(), got.settled(), "kubectl %s", c.args)
			require.Equal(t, !online && !c.noObjects, warned, "whether there was a warning")
		})
	}
	t.Run("api-resources", func(t *testing.T) { requireSameResources(t, s) })
}

// requireSameResources compares the list of resources with the kube-apiserver's: it has those that are
// cached, with the verbs that are served.
func requireSameResources(t *testing.T, s *site) {
	t.Helper()
	const args = "api-resources -o wide --no-headers --sort-by=name"
	served := map[string]string{} // name, API version and namespaced, and all but the verbs
	for _, line := range strings.Split(strings.TrimSpace(s.kubectl(s.server, args).stdout), "\n") {
		served[withoutVerbs(line)] = line
	}
	lines := strings.Split(strings.TrimSpace(s.kubectl(s.cached, args).stdout), "\n")
	require.Len(t, lines, len(s.resources)+3) // reviews
	for _, line := range lines {
		require.Contains(t, served, withoutVerbs(line))
		if strings.HasPrefix(line, "selfsubject") { // its verb, create, has been compared
			continue
		}
		require.Contains(t, line, " get,list,watch ")
	}
}

// withoutVerbs returns a line of api-resources without the verbs and the widths of columns.
func withoutVerbs(line string) string {
	fields := strings.Fields(line)
	kept := fields[:0]
	for _, f := range fields {
		if !strings.Contains(f, "list") {
			kept = append(kept, f)
		}
	}
	return strings.Join(kept, " ")
}

// TestKubeconfigThroughPipe reads with a kubeconfig that is not a file.
func TestKubeconfigThroughPipe(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared.plane)
	want := s.kubectl(s.cached, "get nodes")
	require.Zero(t, want.code, want.stderr)
	script := fmt.Sprintf("%s --kubeconfig <(%s kubeconfig --config %s/agent.yaml) get nodes", s.KubectlPath(), harness.Snapcache, s.dir)
	got := s.startProgram(t.Context(), "", "bash", "-c", script).wait()
	require.Equal(t, want.settled(), got.settled())
}

// requireWarning waits until kubectl warns, or no longer warns, that the answers may be stale.
func (s *site) requireWarning(wanted bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return warning.MatchString(s.kubectl(s.cached, "get ns ns").stderr) == wanted
	}, patience, pollEvery, "a warning of stale answers: %v", wanted)
}

// output is what a command has printed.
type output struct {
	code           int
	stdout, stderr string
}

var (
	age    = regexp.MustCompile(`\b(\d+[ydhms]){1,2}\b`)
	spaces = regexp.MustCompile(`[ \t]+`) // the widths of columns depend on the ages
)

// settled returns the output without ages.
func (o output) settled() output {
	o.stdout = spaces.ReplaceAllString(age.ReplaceAllString(o.stdout, "AGE"), " ")
	return o
}

// kubectl runs a command.
func (s *site) kubectl(kubeconfig, args string) output {
	return s.startKubectl(s.t.Context(), kubeconfig, args).wait()
}

// kubectlRun is a command that runs.
type kubectlRun struct {
	cmd            *exec.Cmd
	stdout, stderr logtest.Buffer
}

func (s *site) startKubectl(ctx context.Context, kubeconfig, args string) *kubectlRun {
	s.t.Helper()
	if _, err := os.Stat(s.KubectlPath()); err != nil {
		s.t.Skipf("there is no kubectl: %v", err)
	}
	return s.startProgram(ctx, kubeconfig, s.KubectlPath(), strings.Fields(args)...)
}

// startProgram starts kubectl, or a program that prints the same.
func (s *site) startProgram(ctx context.Context, kubeconfig, name string, args ...string) *kubectlRun {
	s.t.Helper()
	r := &kubectlRun{cmd: exec.CommandContext(ctx, name, args...)}
	r.cmd.Env = []string{"HOME=" + s.dir, "KUBECONFIG=" + kubeconfig}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	require.NoError(s.t, r.cmd.Start())
	return r
}

func (r *kubectlRun) wait() output {
	_ = r.cmd.Wait() // ProcessState has the result
	return output{r.cmd.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String()}
}
