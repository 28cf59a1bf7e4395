package e2e

import (
	"bytes"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// likeKubectl are command lines of get whose output, messages and exit code are kubectl's.
var likeKubectl = []string{
	// Tables.
	"pods",
	"pods -A",
	"po -n shop-0001",
	"pods -n none",
	"nodes",
	"pods -A -o wide",
	"pods,cm -n shop-0001",
	"po,svc,deploy -A -o wide",
	"all -A",
	"all -n shop-0002 --no-headers",
	"pods -A --show-labels",
	"pods -n shop-0001 -L app.kubernetes.io/name -L none,example.com/tier",
	"pods -n shop-0001 --no-headers",
	"pods -n shop-0001 --show-kind",
	"pods -A -l app.kubernetes.io/managed-by=fleet",
	"pods -A -l example.com/tier!=frontend --field-selector status.phase=Running",
	"pods -A --sort-by .metadata.uid",
	"nodes --sort-by metadata.name -o wide",
	"widgets -A",
	"crd widgets.example.com",
	"ns default kube-system",
	"ns/default svc/kubernetes",
	"svc/kubernetes ns/default svc/kubernetes",
	"ns,crd default",

	// Names of types.
	"wg -A -o name",
	"Widget.v1.example.com -A -o name",
	"widgets.example -A -o name",
	"PODS,pod,po,Pod -A -o name",
	"deployments.v1.apps -A -o name",
	"events.events.k8s.io -A",
	"ev -A",

	// Line breaks in cells.
	"ev -o wide",
	"ev -o wide --no-headers",

	// Other formats.
	"pods,cm -A -o json",
	"pods,cm -A -o yaml",
	"pods -n shop-0001 -o kyaml",
	"pods -A -o name",
	"clusterroles -o yaml",
	"clusterroles -o json",
	"pods -n none -o json",
	"pods -n none -o yaml",
	"pods -n none -o name",
	"ns default -o json",
	"ns default -o yaml --show-managed-fields",
	"ns default kube-system -o yaml",
	"ns default -o jsonpath={.metadata.name}",
	"pods -A -o jsonpath={.items[*].metadata.name}",
	"pods -A -o jsonpath-as-json={.items[*].spec.containers[*].image}",
	"pods -A -o go-template={{range.items}}{{.metadata.name}},{{end}}",
	"pods -A -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image,LABELS:{.metadata.labels},NONE:none",
	"pods -A --no-headers -o custom-columns=NAME:metadata.name",
	"pods -n none -o custom-columns=NAME:metadata.name",
	"pods -A --sort-by .metadata.uid -o name",
	"pods -A --sort-by .metadata.uid -o json",
	"pods -A --sort-by .spec.nodeName -o jsonpath={.items[*].spec.nodeName}",

	// Errors.
	"pods x",
	"pods x -n shop-0001",
	"pods x -n none",
	"pods x y",
	"pods x y -o json",
	"po,cm x y",
	"pods/x cm/y ns/default",
	"ns default x -o name",
	"ns x --ignore-not-found",
	"ns x --ignore-not-found -o json",
	"ns default x --ignore-not-found",
	"pods -n none --ignore-not-found",
	"pods/",
	"pods/a/b",
	"pods x -A",
	"pods x -l a=b",
	"pods/x -l a=b",
	"pods -l a!",
	"pods --field-selector a=b",
	"pods -o json --show-labels",
	"pods,svc -w",
}

// eventOfLines has a message of two lines, the second one longer than what is shown of all messages.
const eventOfLines = `apiVersion: v1
kind: Event
metadata: {name: lines, namespace: default}
involvedObject: {kind: Pod, name: lines, namespace: default}
reason: Lines
type: Warning
message: |-
  one line
  and then a line that is much longer than all messages that a quiet control plane has in its events, and not shown
firstTimestamp: "2026-01-02T03:04:05Z"
lastTimestamp: "2026-01-02T03:04:05Z"
count: 1
`

// TestGetLikeKubectl compares get with kubectl, both on a kube-apiserver: what snapcache prints, not
// what it serves.
func TestGetLikeKubectl(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: nodes"})
	serveAsAgent(t, x.socket, cp)
	lines := filepath.Join(t.TempDir(), "event.yaml")
	require.NoError(t, os.WriteFile(lines, []byte(eventOfLines), 0o600))
	require.Zero(t, runKubectl(t, cp, "apply", "-f", lines).Code)
	for _, args := range likeKubectl {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			requireLikeKubectl(t, x.in(t), cp, strings.Fields(args)...)
		})
	}
}

// fromCache are command lines of get that print from the cache what kubectl prints from the server.
var fromCache = []string{
	"pods -A -o wide",
	"po,cm,svc -n shop-0001",
	"wg -A --show-labels",
	"deploy -A -L app.kubernetes.io/name --sort-by .metadata.uid",
	"nodes --no-headers",
	"pods -A -l example.com/tier!=frontend --field-selector status.phase=Running",
	"pods,cm -A -o json",
	"pods -A -o yaml",
	"pods -A -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image",
	"Pod,po,pods -n shop-0002 -o name",
	"pods -n none",
	"pods x -n shop-0001",
	"pods x y -o json",
	"pods -l a!",
	"pods --field-selector a=b",
}

// TestGetFromCache compares get, from the agent and from its file, with kubectl.
func TestGetFromCache(t *testing.T) {
	t.Parallel()
	cp, a := startQuiet(t)
	x := a.site
	for _, from := range []string{"socket", "file"} {
		if from == "file" {
			a.stop()
		}
		for _, args := range fromCache {
			t.Run(from+" "+args, func(t *testing.T) { requireLikeKubectl(t, x.in(t), cp, strings.Fields(args)...) })
		}
	}
}

// age is an age in a table, with the spaces after it.
var age = regexp.MustCompile(`\b(\d+[dhms])+( +|\n)`)

// requireLikeKubectl runs get and kubectl get until both ran in the same second: they print ages. On a machine that is too
// slow for that the ages may differ.
func requireLikeKubectl(t *testing.T, x *site, cp *controlplane.ControlPlane, args ...string) {
	t.Helper()
	args = append([]string{"get"}, args...)
	var want, got harness.Result
	var began time.Time
	for range 10 {
		began = time.Now()
		want, got = runKubectl(t, cp, args...), x.run(append(args, "--config", x.config)...)
		if bytes.Equal(want.Stdout, got.Stdout) {
			break
		}
	}
	if time.Since(began) > time.Second {
		want.Stdout, got.Stdout = age.ReplaceAll(want.Stdout, []byte("AGE\n")), age.ReplaceAll(got.Stdout, []byte("AGE\n"))
	}
	require.Equal(t, string(want.Stdout), string(got.Stdout))
	require.Equal(t, want.Stderr, got.Stderr)
	require.Equal(t, want.Code, got.Code)
}

func runKubectl(t *testing.T, cp *controlplane.ControlPlane, args ...string) harness.Result {
	t.Helper()
	return harness.RunToEnd(t, kubectlCommand(t, cp, args...))
}

// serveAsAgent serves the Kubernetes API of a server on the socket of an agent.
func serveAsAgent(t *testing.T, socket string, cp *controlplane.ControlPlane) {
	t.Helper()
	server, err := url.Parse(cp.URL())
	require.NoError(t, err)
	transport, err := rest.TransportFor(cp.RESTConfig(controlplane.Admin))
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) },
	})
	mux.HandleFunc("GET /v1alpha1/status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}")) // a client that is gone needs no answer
	})
	listener, err := files.ListenUnix(socket)
	require.NoError(t, err)
	s := &http.Server{Handler: mux}
	served := make(chan error)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		<-served
	})
}
