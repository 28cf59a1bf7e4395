package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// extension is the server of an aggregated API with one resource, gauges, that can be broken.
type extension struct {
	broken atomic.Value // what is wrong, a string
}

// ServeHTTP implements [http.Handler].
func (e *extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	broken := e.broken.Load().(string)
	if broken == "down" {
		http.Error(w, "broken", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	verbs, version := `"get","list","watch"`, "5"
	switch broken {
	case "no watch":
		verbs = `"get","list"`
	case "no resourceVersion":
		version = ""
	}
	gauge := `{"kind":"Gauge","apiVersion":"lab.example.com/v1","metadata":{"name":"one","uid":"1","resourceVersion":"` + version + `"},"value":1}`
	switch {
	case r.URL.Path == "/apis/lab.example.com/v1":
		_, _ = fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"lab.example.com/v1","resources":[`+
			`{"name":"gauges","singularName":"gauge","kind":"Gauge","namespaced":false,"verbs":[%s]}]}`, verbs)
	case !strings.HasSuffix(r.URL.Path, "/gauges"):
		http.NotFound(w, r)
	case broken == "hangs":
		<-r.Context().Done()
	case r.URL.Query().Has("watch"):
		if verbs == `"get","list"` {
			http.Error(w, "no watch", http.StatusMethodNotAllowed)
			return
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		_, _ = fmt.Fprintf(w, `{"kind":"GaugeList","apiVersion":"lab.example.com/v1","metadata":{"resourceVersion":"%s"},"items":[%s]}`, version, gauge)
	}
}

// TestAggregatedAPI follows a resource of an aggregated API whose server is broken in each way, beside one of the
// kube-apiserver, which never waits for it. When it is mended the resource is followed, without a restart.
func TestAggregatedAPI(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 10, Namespaces: 1}))
	e := &extension{}
	e.broken.Store("down")
	server := httptest.NewTLSServer(e)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	aggregate(t, cp, server.URL)

	const gauges = "gauges.lab.example.com"
	for _, broken := range []string{"down", "hangs", "no watch", "no resourceVersion"} {
		e.broken.Store(broken)
		server.CloseClientConnections()
		x := newSite(t, settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: configmaps\n- resource: " + gauges})
		x.env = []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=3", "HTTP2_PING_TIMEOUT_SECONDS=2"}
		a := x.start()
		a.requireServers(cp, "configmaps")
		s := a.await("gauges have a problem", func(s *localapi.Status) string {
			if c := collections(s)[gauges]; c.Problem == "" && broken != "hangs" {
				return "no problem"
			}
			return ""
		})
		t.Logf("%s: %s", broken, collections(s)[gauges].Problem)
		_, err := objects.Touch(t.Context(), cp.RESTConfig(controlplane.Admin), "configmaps", 3)
		require.NoError(t, err)
		a.requireServers(cp, "configmaps")

		e.broken.Store("")
		server.CloseClientConnections()
		a.awaitCaughtUp(anywhere(gauges))
		require.Len(t, x.cached(gauges), 1)
		a.stop()
	}
}

// aggregate makes a server the one of lab.example.com/v1.
func aggregate(t *testing.T, cp *controlplane.ControlPlane, address string) {
	t.Helper()
	at, err := url.Parse(address)
	require.NoError(t, err)
	port, err := strconv.ParseInt(at.Port(), 10, 64)
	require.NoError(t, err)
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	create := func(group, version, resource, namespace string, o map[string]any) {
		_, err := client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).Namespace(namespace).
			Create(t.Context(), &unstructured.Unstructured{Object: o}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	create("", "v1", "services", "default", map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "lab"},
		"spec": map[string]any{"type": "ExternalName", "externalName": "localhost", "ports": []any{map[string]any{"port": port, "name": "https"}}},
	})
	create("apiregistration.k8s.io", "v1", "apiservices", "", map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.lab.example.com"},
		"spec": map[string]any{
			"group": "lab.example.com", "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true, "service": map[string]any{"name": "lab", "namespace": "default", "port": port},
		},
	})
}
