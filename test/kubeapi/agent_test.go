package kubeapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// agent is a running `snapcache run`.
type agent struct {
	*harness.Process
	status *localapi.Client
	target *target
}

// startAgent starts an agent that keeps its files in dir.
func startAgent(cp *controlplane.ControlPlane, dir string, resources []*resource) (*agent, error) {
	kubeconfig, err := cp.Kubeconfig(controlplane.Admin)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: snapcache.dev/v1alpha1\nkind: AgentConfiguration\nresumeJitter: 0s\nmetrics: {disabled: true}\n")
	fmt.Fprintf(&b, "store: {path: %s/cache.db, commitInterval: 50ms}\n", dir)
	fmt.Fprintf(&b, "localAPI: {socket: %s/local.sock}\nkubernetesAPI: {socket: %s/kube.sock, openAPI: true}\n", dir, dir)
	fmt.Fprintf(&b, "secrets:\n  storeOnDisk: I understand that Secrets will be stored unencrypted on this node's disk\n")
	fmt.Fprintf(&b, "resources:\n")
	for _, r := range resources {
		fmt.Fprintf(&b, "- {resource: %s, transform: {keepManagedFields: true}}\n", r.name())
	}
	if err := os.WriteFile(filepath.Join(dir, "agent.yaml"), []byte(b.String()), 0o600); err != nil {
		return nil, err
	}
	p, err := startSnapcache(dir, "--kubeconfig", kubeconfig)
	if err != nil {
		return nil, err
	}
	return &agent{p, localapi.NewClient(filepath.Join(dir, "local.sock")), newSocketTarget(filepath.Join(dir, "kube.sock"))}, nil
}

// startSnapcache starts the program with the configuration in dir.
func startSnapcache(dir string, args ...string) (*harness.Process, error) {
	cmd := exec.Command(harness.Snapcache, append([]string{"run", "--config", filepath.Join(dir, "agent.yaml")}, args...)...)
	cmd.Dir, cmd.Env = dir, harness.Environment(dir)
	return harness.StartProcess(cmd, filepath.Join(dir, "log"))
}

// await waits until each resource is caught up and at its newest resourceVersion, and until the
// documents that the agent keeps of the server are there.
func (a *agent) await(ctx context.Context, resources []*resource) error {
	missing := "no answer"
	err := wait.PollUntilContextTimeout(ctx, pollEvery, patience, true, func(ctx context.Context) (bool, error) {
		if !a.Running() {
			return false, fmt.Errorf("the agent ended: %s", a.Output())
		}
		status, err := a.status.Status(ctx)
		if err != nil {
			missing = err.Error()
			return false, nil
		}
		if missing = behind(status, resources); missing != "" {
			return false, nil
		}
		for _, path := range []string{"/version", "/openapi/v3/api/v1", "/openapi/v3/apis/lab.example.com/v1"} {
			r, err := a.target.askOnce(ctx, request{method: http.MethodGet, path: path})
			if err != nil || r.status != http.StatusOK {
				missing = fmt.Sprintf("%s is answered with %d (%v)", path, r.status, err)
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the agent is caught up: %w: %s", err, missing)
	}
	return nil
}

// behind returns which resources are not caught up, or have not reached their newest
// resourceVersion or number of objects.
func behind(status *localapi.Status, resources []*resource) string {
	var missing []string
	for _, r := range resources {
		found := localapi.Collection{ID: r.name(), Phase: "missing"}
		for _, c := range status.Collections {
			if c.Group == r.Group && c.Resource == r.Resource {
				found = c
			}
		}
		older, _ := object.CompareRV(found.ResourceVersion, r.newest)
		deleted := r.newest == "" || int(found.Objects) == len(r.objects)
		if !found.CaughtUp || r.newest != "" && older < 0 || !deleted {
			missing = append(missing, fmt.Sprintf("%s has %d objects at %q, wanted %d at %q, in phase %s (%s)",
				r.name(), found.Objects, found.ResourceVersion, len(r.objects), r.newest, found.Phase, found.Problem))
		}
	}
	return strings.Join(missing, "; ")
}

// newSocketTarget returns the Kubernetes API at a unix socket as the target of requests.
func newSocketTarget(socket string) *target {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	transport := &http.Transport{DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: 32}
	return &target{name: "agent", base: &url.URL{Scheme: "http", Host: "snapcache"}, client: &http.Client{Transport: transport}}
}
