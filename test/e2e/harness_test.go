package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

const (
	// patience is the timeout of a wait: far longer than it takes on an idle machine, and than an
	// agent's backoff.
	patience = harness.Patience

	// pollEvery is the interval of polls.
	pollEvery = harness.PollEvery
)

// site is the directory of an agent: configuration, database and socket.
type site struct {
	t          *testing.T
	dir        string
	config     string
	kubeconfig string
	db         string
	socket     string
	log        string
	metrics    string // address
	env        []string
	program    string // path
}

// settings are the parts of a configuration that differ between tests.
type settings struct {
	kubeconfig     string // path
	resources      string // YAML
	commitInterval string // empty for 50ms, so that changes become visible soon
	consent        bool   // to Secrets on disk
	purgeAfter     string // of Secrets; empty for the default
	more           string // YAML of further fields
}

// newSite creates a directory for an agent, which is removed when the test ends.
func newSite(t *testing.T, s settings) *site {
	t.Helper()
	// Not t.TempDir, which contains the test's name: the path of the socket would get too long.
	dir, err := os.MkdirTemp("", "snapcache-e2e-")
	require.NoError(t, err)
	x := &site{
		t: t, dir: dir, kubeconfig: s.kubeconfig,
		config: filepath.Join(dir, "agent.yaml"), db: filepath.Join(dir, "state", "cache.db"),
		socket: filepath.Join(dir, "agent.sock"), log: filepath.Join(dir, "agent.log"),
		metrics: harness.FreeAddress(t), program: harness.Snapcache,
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	harness.ShowLog(t, x.log)
	x.configure(s)
	return x
}

// configure rewrites the configuration, with the same database and socket.
func (x *site) configure(s settings) {
	x.t.Helper()
	x.kubeconfig = s.kubeconfig
	if s.commitInterval == "" {
		s.commitInterval = "50ms"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: snapcache.dev/v1alpha1\nkind: AgentConfiguration\n")
	// Only one agent starts, so no jitter.
	fmt.Fprintf(&b, "resumeJitter: 0s\n")
	fmt.Fprintf(&b, "store:\n  path: %s\n  commitInterval: %s\n", x.db, s.commitInterval)
	fmt.Fprintf(&b, "localAPI:\n  socket: %s\nmetrics:\n  address: %s\n", x.socket, x.metrics)
	if s.consent {
		fmt.Fprintf(&b, "secrets:\n  storeOnDisk: I understand that Secrets will be stored unencrypted on this node's disk\n")
	}
	if s.purgeAfter != "" {
		fmt.Fprintf(&b, "  purgeAfter: %s\n", s.purgeAfter)
	}
	fmt.Fprintf(&b, "%s\n", s.more)
	fmt.Fprintf(&b, "resources:\n%s\n", strings.TrimSpace(s.resources))
	require.NoError(x.t, os.WriteFile(x.config, []byte(b.String()), 0o600))
}

// in returns the same site for a subtest, so that failures are reported there and not in the
// parent.
func (x *site) in(t *testing.T) *site {
	y := *x
	y.t = t
	return &y
}

// command returns the site's program with arguments. The test's environment must not affect it.
func (x *site) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, x.program, args...)
	cmd.Dir = x.dir
	cmd.Env = append(harness.Environment(x.dir), x.env...)
	return cmd
}

// run runs the command line to its end.
func (x *site) run(args ...string) harness.Result {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return harness.RunToEnd(x.t, x.command(ctx, args...))
}

// must runs one of the readers, which must succeed, and returns its output.
func (x *site) must(args ...string) []byte {
	x.t.Helper()
	r := x.run(append(args, "--config", x.config)...)
	if r.Code != 0 {
		x.t.Fatalf("snapcache %q ended with %d: %s", args, r.Code, r.Stderr)
	}
	return r.Stdout
}

// in returns the same agent for a subtest.
func (a *agent) in(t *testing.T) *agent {
	b := *a
	b.site = a.site.in(t)
	return &b
}

// agent is a running `snapcache run`.
type agent struct {
	*site
	*harness.Process
	client *localapi.Client
}

// start starts an agent, which ends with the test at the latest.
func (x *site) start() *agent {
	x.t.Helper()
	return x.launch(x.runArgs()...)
}

func (x *site) runArgs() []string {
	return []string{"run", "--config", x.config, "--kubeconfig", x.kubeconfig}
}

func (x *site) launch(args ...string) *agent {
	x.t.Helper()
	p, err := harness.StartProcess(x.command(context.Background(), args...), x.log)
	require.NoError(x.t, err)
	x.t.Cleanup(p.Kill)
	return &agent{x, p, localapi.NewClient(x.socket)}
}

// kill ends the agent with SIGKILL. It must not have ended by itself.
func (a *agent) kill() {
	a.t.Helper()
	require.True(a.t, a.Running(), "the agent has ended")
	a.Kill()
}

// stop ends the agent like systemd, and requires exit code 0.
func (a *agent) stop() {
	a.t.Helper()
	require.NoError(a.t, a.Stop())
}

// wait returns the exit code of an agent that is about to exit by itself.
func (a *agent) wait() int {
	a.t.Helper()
	code, err := a.Wait()
	require.NoError(a.t, err)
	return code
}

// await polls the agent's status until ok returns an empty text; the text describes what is
// missing.
func (a *agent) await(what string, ok func(*localapi.Status) string) *localapi.Status {
	a.t.Helper()
	var status *localapi.Status
	missing := "no answer"
	poll(a.t, what, &missing, func(ctx context.Context) (bool, error) {
		if !a.Running() {
			return false, fmt.Errorf("the agent ended with %d", a.Cmd.ProcessState.ExitCode())
		}
		s, err := a.client.Status(ctx)
		if err != nil {
			missing = err.Error()
			return false, nil
		}
		status, missing = s, ok(s)
		return missing == "", nil
	})
	return status
}

// awaitCaughtUp waits until the collections in at are caught up and complete up to the given
// resourceVersions, and returns them by ID. An empty resourceVersion means any.
func (a *agent) awaitCaughtUp(at map[string]string) map[string]localapi.Collection {
	a.t.Helper()
	s := a.await("caught up", func(s *localapi.Status) string {
		found := collections(s)
		var missing []string
		for id, rv := range at {
			c := found[id]
			if behind, _ := object.CompareRV(c.ResourceVersion, rv); !c.CaughtUp || rv != "" && behind < 0 {
				missing = append(missing, fmt.Sprintf("%s is at %q of %q, in phase %q (%s)", id, c.ResourceVersion, rv, c.Phase, c.Problem))
			}
		}
		return strings.Join(missing, "; ")
	})
	return collections(s)
}

// minorVersion returns the minor version of the server.
func minorVersion(t *testing.T, cp *controlplane.ControlPlane) int {
	t.Helper()
	version, err := harness.Clientset(t, cp.RESTConfig(controlplane.Admin)).Discovery().ServerVersion()
	require.NoError(t, err)
	minor, err := strconv.Atoi(version.Minor)
	require.NoError(t, err)
	return minor
}

func collections(s *localapi.Status) map[string]localapi.Collection {
	m := make(map[string]localapi.Collection, len(s.Collections))
	for _, c := range s.Collections {
		m[c.ID] = c
	}
	return m
}

// anywhere returns the collections without resourceVersions, for awaitCaughtUp.
func anywhere(ids ...string) map[string]string {
	m := make(map[string]string, len(ids))
	for _, id := range ids {
		m[id] = ""
	}
	return m
}

// poll polls until ok returns true or an error, or until the timeout. ok may set missing to a text
// for the failure message; nil for none.
func poll(t *testing.T, what string, missing *string, ok wait.ConditionWithContextFunc) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), pollEvery, patience, true, ok)
	if err == nil {
		return
	}
	if missing != nil && *missing != "" {
		t.Fatalf("wait until %s: %v: %s", what, err, *missing)
	}
	t.Fatalf("wait until %s: %v", what, err)
}
