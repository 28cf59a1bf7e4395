package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	"github.com/snapcache/snapcache/upstream"
)

// TestUnknownResource configures a resource of an aggregated API whose server does not exist, and then,
// while the network is cut, a resource that the server would know. kubectl gets the nodes that are on the
// disk all the same, with and without forwarding, and a clear error for the others.
func TestUnknownResource(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{Nodes: 2, Widgets: 3}))
	breakAPI(t, cp)
	for _, forward := range []bool{false, true} {
		name := "alone"
		if forward {
			name = "forwarding"
		}
		t.Run(name, func(t *testing.T) {
			p := harness.NetworkOf(t, harness.Kubeconfig(t, cp, controlplane.Admin))
			s := settings{kubeconfig: p.Kubeconfig, resources: "- resource: nodes\n- resource: things.broken.example.com"}
			s.more = "kubernetesAPI: {address: '" + harness.FreeAddress(t) + "'}"
			if forward {
				s.more = strings.TrimSuffix(s.more, "}") + ", access: {enabled: true}, forward: {enabled: true}}"
			}
			x := newSite(t, s)
			a := x.start()
			a.requireServers(cp, "nodes")
			a.await("things have a problem", func(s *localapi.Status) string {
				if collections(s)["things.broken.example.com"].Problem == "" {
					return "no problem"
				}
				return ""
			})
			k := newAgentKubectl(t, cp, x)
			k.requireNodes("online")
			out, code := k.run("get", "things.broken.example.com")
			require.NotZero(t, code, out)
			require.Contains(t, k.fails("get", "--raw", "/apis/broken.example.com/v1/things"), "things.broken.example.com can't be served yet, because the server has not named it")
			require.Contains(t, k.must("get", "--raw", "/apis"), `"broken.example.com/v1"`, "a group that is known is listed")
			require.Contains(t, k.must("api-resources", "-o", "name"), "nodes")
			if forward {
				k.as(cp, controlplane.Reader)
				k.requireNodes("online, forwarded")
				require.Contains(t, k.must("get", "widgets", "-A"), "widget-", "forwarded")
				k.as(cp, "")
			}
			a.stop()

			s.resources = "- resource: nodes\n- resource: widgets.example.com"
			x.configure(s)
			p.Down()
			a = x.start()
			k.requireNodes("offline")
			require.Contains(t, k.fails("get", "--raw", "/apis/example.com/v1/widgets"), "widgets.example.com can't be served yet")
			out, code = k.run("get", "widgets")
			require.NotZero(t, code, out)
			require.Zero(t, a.awaitStatus()["widgets.example.com"].Lists)

			p.Up()
			a.requireServers(cp, "widgets.example.com", "nodes")
			k.requireNodes("online again")
			require.Contains(t, k.must("get", "widgets", "-A"), "widget-")
			a.stop()
		})
	}
}

// awaitStatus returns the collections of the first status.
func (a *agent) awaitStatus() map[string]localapi.Collection {
	return collections(a.await("a status", func(*localapi.Status) string { return "" }))
}

// breakAPI makes an aggregated API whose server does not exist.
func breakAPI(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	_, err := client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}).Create(t.Context(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.broken.example.com"},
			"spec": map[string]any{
				"group": "broken.example.com", "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
				"insecureSkipTLSVerify": true, "service": map[string]any{"name": "none", "namespace": "default"},
			},
		}}, metav1.CreateOptions{})
	require.NoError(t, err)
	c := newCluster(t, cp, controlplane.Admin)
	missing := ""
	poll(t, "the server has the group", &missing, func(ctx context.Context) (bool, error) {
		_, err := c.Resolve(ctx, "things", "", "broken.example.com")
		missing = err.Error()
		return errors.As(err, new(*upstream.UnreadError)), nil
	})
}

// agentKubectl is kubectl with an agent's Kubernetes API.
type agentKubectl struct {
	t                *testing.T
	path, home, file string
}

func newAgentKubectl(t *testing.T, cp *controlplane.ControlPlane, x *site) *agentKubectl {
	t.Helper()
	k := &agentKubectl{t: t, path: cp.KubectlPath(), home: t.TempDir()}
	k.file = filepath.Join(k.home, "agent.kubeconfig")
	require.NoError(t, os.WriteFile(k.file, x.must("kubeconfig"), 0o600))
	return k
}

// as makes k a user of the cluster; none is the agent's own again.
func (k *agentKubectl) as(cp *controlplane.ControlPlane, user string) {
	k.t.Helper()
	k.file = filepath.Join(k.home, "agent.kubeconfig")
	if user == "" {
		return
	}
	config, err := clientcmd.LoadFromFile(k.file)
	require.NoError(k.t, err)
	for _, info := range config.AuthInfos {
		info.Token = cp.RESTConfig(user).BearerToken
	}
	k.file = filepath.Join(k.home, user+".kubeconfig")
	require.NoError(k.t, clientcmd.WriteToFile(*config, k.file))
}

// run runs kubectl without what an earlier run has cached, and returns its output.
func (k *agentKubectl) run(args ...string) (out string, code int) {
	k.t.Helper()
	cmd := exec.Command(k.path, append(args, "--cache-dir", k.t.TempDir())...)
	cmd.Env = []string{"HOME=" + k.home, "KUBECONFIG=" + k.file}
	b, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		k.t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

func (k *agentKubectl) must(args ...string) string {
	k.t.Helper()
	out, code := k.run(args...)
	require.Zero(k.t, code, "kubectl %q: %s", args, out)
	return out
}

func (k *agentKubectl) fails(args ...string) string {
	k.t.Helper()
	out, code := k.run(args...)
	require.NotZero(k.t, code, "kubectl %q: %s", args, out)
	return out
}

func (k *agentKubectl) requireNodes(when string) {
	k.t.Helper()
	require.Equal(k.t, 2, strings.Count(k.must("get", "nodes", "-o", "name"), "node/"), when)
}
