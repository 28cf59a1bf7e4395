package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

var (
	ownKubeconfig = flag.String("own.kubeconfig", "",
		"a kubeconfig `file` for TestOwnServer: its cluster is changed, killed and restored; empty for one that the test starts")
	ownProgram = flag.String("own.program", "",
		"the `program` that kills, starts, saves and restores that cluster's server: testdata/server.sh is an example")
)

// ownServer is a server of which the test has a kubeconfig, and a program that takes "kill", "start", "save DIR" and
// "restore DIR".
type ownServer struct {
	t          *testing.T
	kubeconfig string
	config     *rest.Config
	program    string
	env        []string // of the program

	changes, kills int
	reasons        counters         // of all lists
	known          map[int]counters // those of an agent's process that were checked
}

const ownRoles = "clusterroles.rbac.authorization.k8s.io"

// ownIDs are the collections, with their resources.
var ownIDs = map[string]schema.GroupVersionResource{
	"configmaps":          {Version: "v1", Resource: "configmaps"},
	"widgets.example.com": objects.WidgetResource,
	ownRoles:              {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
}

var ownAnywhere = anywhere(slices.Collect(maps.Keys(ownIDs))...)

// TestOwnServer takes any server through what a server does to an agent, knowing no more of it than its kubeconfig and
// how to kill and restore it. After each step the agent's objects must be the server's, which are listed with all fields,
// and a list must have had a reason that fits the step.
func TestOwnServer(t *testing.T) {
	t.Parallel()
	s := newOwnServer(t)
	many := times(500, 5000)
	s.churn(200)
	x := newSite(t, settings{kubeconfig: s.kubeconfig, resources: "- resource: configmaps\n- resource: widgets.example.com\n- resource: " + ownRoles})
	a := x.start()
	s.requireSame(a, "initial")

	t.Log("agent killed")
	stop := s.beginChurn()
	for range times(5, 50) {
		a.awaitCaughtUp(ownAnywhere)
		s.requireReasons(a)
		s.kills++
		a.kill()
		a = x.start()
	}
	stop()
	s.requireSame(a)

	t.Log("server killed")
	stop = s.beginChurn()
	for range times(1, 5) {
		s.do("kill")
		s.do("start")
		s.churn(20)
	}
	stop()
	s.requireSame(a, "expired")

	t.Log("agent started without its server")
	a.stop()
	s.churn(50)
	before := x.cached("configmaps")
	s.do("kill")
	a = x.start()
	a.await("served from the disk", func(*localapi.Status) string { return "" })
	requireSame(t, "configmaps, offline", before, x.cached("configmaps"))
	s.do("start")
	s.requireSame(a, "expired")

	t.Logf("%d objects created and deleted", many)
	s.createMany(many)
	s.requireSame(a)
	s.deleteMany()
	s.requireSame(a)

	t.Log("large objects, unusual names")
	s.createUnusual()
	s.requireSame(a)

	t.Log("definition changed, deleted, created")
	definitions := harness.Dynamic(t, s.config).Resource(definitionsResource)
	_, err := definitions.Patch(t.Context(), "widgets.example.com", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/names/shortNames","value":["wdg"]}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	s.requireSame(a, "expired", "schema-changed")
	require.NoError(t, definitions.Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}))
	poll(t, "the definition is gone", nil, func(ctx context.Context) (bool, error) {
		_, err := definitions.Get(ctx, "widgets.example.com", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	s.churn(50)
	s.requireSame(a, "initial", "expired", "schema-changed", "resource-gone")

	t.Log("restored to before and past the checkpoint")
	saved := filepath.Join(t.TempDir(), "saved")
	s.do("save", saved)
	s.churn(100)
	s.requireSame(a, "expired")
	s.do("restore", saved)
	s.requireSame(a, "rv-ahead", "expired")
	s.churn(100)
	s.requireSame(a)
	a.stop()
	s.do("restore", saved)
	s.churn(300)
	a = x.start()
	s.requireSame(a, "rv-ahead", "expired")

	a.stop()
	x.must("check")
	t.Logf("reasons of lists: %v", s.reasons)
	t.Logf("counted: %d changes, %d kills, %d lists", s.changes, s.kills, s.reasons.total())
}

func newOwnServer(t *testing.T) *ownServer {
	t.Helper()
	s := &ownServer{t: t, kubeconfig: *ownKubeconfig, program: *ownProgram, reasons: counters{}, known: make(map[int]counters)}
	if s.kubeconfig == "" {
		s.startControlPlane()
	}
	var err error
	s.config, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	require.NoError(t, err)
	s.config.QPS = -1
	return s
}

// startControlPlane starts a control plane of which the test knows what it would know of a user's.
func (s *ownServer) startControlPlane() {
	root := harness.Root(s.t)
	dir, err := os.MkdirTemp("", "cp") // short, as there is a socket in it
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, os.RemoveAll(dir)) })
	program := filepath.Join(dir, "controlplane")
	build := exec.CommandContext(s.t.Context(), "go", "build", "-o", program, "./cmd/controlplane")
	build.Dir = filepath.Join(root, "test", "controlplane")
	require.Zero(s.t, harness.RunToEnd(s.t, build).Code)
	s.env = []string{"CONTROLPLANE=" + program, "SNAPCACHE_CONTROLPLANE_DIR=" + dir}
	s.program = filepath.Join(root, "test", "e2e", "testdata", "server.sh")

	start := exec.Command(program, "start") //nolint:noctx // it ends with the test
	start.Env = append(os.Environ(), s.env...)
	p, err := harness.StartProcess(start, filepath.Join(dir, "controlplane.log"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, p.Stop()) })
	poll(s.t, "the control plane runs", nil, func(context.Context) (bool, error) {
		_, err := os.Stat(filepath.Join(dir, "control.sock"))
		return err == nil, nil
	})
	s.kubeconfig = filepath.Join(dir, controlplane.Admin+".kubeconfig")
}

// do calls the program. After "start" and "restore" the server may take its time to answer.
func (s *ownServer) do(args ...string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.program, args...)
	cmd.Env = append(os.Environ(), s.env...)
	r := harness.RunToEnd(s.t, cmd)
	require.Zero(s.t, r.Code, "%s %q: %s", s.program, args, r.Stderr)
	if args[0] == "kill" {
		s.kills++
		return
	}
	poll(s.t, "the server is ready", nil, func(ctx context.Context) (bool, error) {
		return harness.Clientset(s.t, s.config).RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	})
}

// churn makes a number of changes.
func (s *ownServer) churn(n int) {
	s.t.Helper()
	done, err := objects.Churn(s.t.Context(), s.config, objects.ChurnOptions{Rate: -1, Count: n, Kinds: churnStored.Kinds})
	require.NoError(s.t, err)
	s.changes += done.Total()
}

func (s *ownServer) beginChurn() (stop func()) {
	return beginChurn(s.t, s.config, churnStored)
}

// createMany creates configmaps, and deleteMany deletes all in their namespace.
func (s *ownServer) createMany(n int) {
	s.t.Helper()
	configmaps := harness.Dynamic(s.t, s.config).Resource(ownIDs["configmaps"]).Namespace(objects.Namespace(0))
	var all sync.WaitGroup
	defer all.Wait()
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < n; i += 8 {
				o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
				o.SetName(fmt.Sprintf("many-%d", i))
				if _, err := configmaps.Create(s.t.Context(), o, metav1.CreateOptions{}); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	s.changes += n
}

func (s *ownServer) deleteMany() {
	s.t.Helper()
	configmaps := harness.Dynamic(s.t, s.config).Resource(ownIDs["configmaps"]).Namespace(objects.Namespace(0))
	// A slow server gives up after its minute for a request.
	poll(s.t, "all are deleted", nil, func(ctx context.Context) (bool, error) {
		_ = configmaps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		list, err := configmaps.List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(list.Items) <= 1, nil // a cluster's controllers make kube-root-ca.crt again
	})
}

// createUnusual creates objects near the limit of etcd's size, and names with colons and letters beyond ASCII.
func (s *ownServer) createUnusual() {
	s.t.Helper()
	client := harness.Dynamic(s.t, s.config)
	createLarge(s.t, client)
	for _, name := range []string{"snapcache:shop:reader:", "snapcache Größe:店:система, with spaces"} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []any{}}}
		o.SetName(name)
		_, err := client.Resource(ownIDs[ownRoles]).Create(s.t.Context(), o, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) { // from a run before
			require.NoError(s.t, err)
		}
	}
}

// list returns the server's objects of a collection, without managedFields like the cache.
func (s *ownServer) list(ctx context.Context, resource schema.GroupVersionResource) (content, error) {
	list, err := harness.Dynamic(s.t, s.config).Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	c := content{}
	for _, o := range list.Items {
		o.SetManagedFields(nil)
		c.add(s.t, o.Object)
	}
	return c, nil
}

// requireSame waits until the agent has the server's objects, and requires that each list since the last call had one
// of these reasons.
func (s *ownServer) requireSame(a *agent, reasons ...string) {
	s.t.Helper()
	a.awaitCaughtUp(ownAnywhere)
	for id, resource := range ownIDs {
		var want content
		var missing string
		poll(s.t, id+" is the server's", &missing, func(ctx context.Context) (bool, error) {
			var err error
			if want, err = s.list(ctx, resource); err != nil {
				missing = err.Error()
				return false, nil
			}
			report := differences(want, a.cached(id))
			missing = strings.Join(report[:min(len(report), maxDiffs)], "\n")
			return len(report) == 0, nil
		})
	}
	a.awaitCaughtUp(ownAnywhere)
	s.requireReasons(a, reasons...)
}

func (s *ownServer) requireReasons(a *agent, reasons ...string) {
	s.t.Helper()
	pid := a.Cmd.Process.Pid
	now := counters{}
	for id := range ownIDs {
		for reason, n := range nonZero(a.relists(id)) {
			now[reason] += n
		}
	}
	for reason, n := range now {
		if more := n - s.known[pid][reason]; more > 0 {
			require.Contains(s.t, reasons, reason)
			s.reasons[reason] += more
		}
	}
	s.known[pid] = now
}
