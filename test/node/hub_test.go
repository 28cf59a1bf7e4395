package node

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// statefulSet is what is needed of the hub's.
type statefulSet struct {
	Kind string
	Data map[string]string // of the ConfigMap
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Command, Args  []string
					ReadinessProbe struct{ Exec struct{ Command []string } }
				}
			}
		}
	}
}

// serve runs the image as the manifests of a hub do: with their configuration, arguments, rights and
// probes. Only the network of a pod is missing: its IP is one of the loopback interface. A spoke reads
// from it with its own service account.
func (c *container) serve(t *testing.T) {
	cp := newControlPlane(t)
	root := harness.Root(t)
	kubectl := func(args ...string) string {
		t.Helper()
		out := harness.Kubectl(t, cp, args...)
		return string(out)
	}
	manifests := filepath.Join(root, "deploy", "kustomize")
	for _, name := range []string{"hub", "spoke"} {
		kubectl("apply", "--server-side", "-k", filepath.Join(manifests, name))
	}
	// The address of the Service refuses connections, as it has no replica that is ready.
	servers := strings.NewReplacer("https://kubernetes.default.svc", cp.URL(), "https://snapcache-hub.snapcache-hub.svc", "https://127.0.0.1:1")
	var set statefulSet
	for document := range strings.SplitSeq(kubectl("kustomize", filepath.Join(manifests, "hub")), "\n---\n") {
		var o statefulSet
		require.NoError(t, yaml.Unmarshal([]byte(document), &o))
		switch o.Kind {
		case "ConfigMap":
			c.write(t, "/etc/snapcache/agent.yaml", []byte(o.Data["agent.yaml"]))
			c.write(t, "/etc/snapcache/kubeconfig", []byte(servers.Replace(o.Data["kubeconfig"])))
		case "StatefulSet":
			set = o
		}
	}
	ip := fmt.Sprintf("127.77.%d.%d", os.Getpid()>>8&0xff, os.Getpid()&0xff)
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	c.write(t, account+"token", []byte(kubectl("create", "token", "snapcache-hub", "-n", "snapcache-hub")))
	c.write(t, account+"ca.crt", cp.RESTConfig(controlplane.Admin).CAData)
	certificate, key, err := cert.GenerateSelfSignedCertKey(ip, nil, nil)
	require.NoError(t, err)
	c.write(t, "/etc/tls/tls.crt", certificate)
	c.write(t, "/etc/tls/tls.key", key)
	c.write(t, "/etc/tls/ca.crt", certificate)
	c.env = append(c.env, "SNAPCACHE_CONFIG=/etc/snapcache/agent.yaml")

	container := set.Spec.Template.Spec.Containers[0]
	require.Contains(t, c.env, "PATH=/")
	require.Equal(t, "snapcache", container.Command[0], "in the PATH")
	args := strings.ReplaceAll(strings.Join(append(container.Command[1:], container.Args...), "\n"), "$(POD_IP)", ip)
	cmd := c.command(context.Background(), strings.Split(args, "\n")...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	running := true
	stop := func() (err error) {
		if running {
			running = false
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			err = <-ended
		}
		if t.Failed() {
			t.Logf("the hub's log:\n%s", log.String())
		}
		return err
	}
	defer func() { _ = stop() }()
	probe := container.ReadinessProbe.Exec.Command
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), pollEvery, patience, true, func(ctx context.Context) (bool, error) {
		return c.command(ctx, probe[1:]...).Run() == nil, nil
	}), "the hub never becomes ready")
	require.Contains(t, string(c.run(t, "status")), "12 collections")

	hub := "https://" + net.JoinHostPort(ip, "6445")
	spoke := client(t, certificate, kubectl("create", "token", "snapcache", "-n", "snapcache"))
	stranger := client(t, certificate, "")
	uid := kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	for _, tc := range []struct {
		name, path string
		client     *http.Client
		code       int
		body       string
	}{
		{"identity", "/api/v1/namespaces/kube-system", spoke, http.StatusOK, uid},
		{"a list", "/api/v1/namespaces/shop/configmaps", spoke, http.StatusOK, "till-0"},
		{"what the cluster does not grant", "/apis/rbac.authorization.k8s.io/v1/clusterroles", spoke, http.StatusForbidden, "system:serviceaccount:snapcache:snapcache"},
		{"metrics", "/metrics", spoke, http.StatusForbidden, ""},
		{"a stranger", "/api/v1/nodes", stranger, http.StatusUnauthorized, ""},
		{"the liveness probe", "/livez", stranger, http.StatusOK, "ok"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, body := harness.Get(t, tc.client, hub+tc.path)
			require.Equal(t, tc.code, code, "%s", body)
			require.Contains(t, string(body), tc.body)
		})
	}
	require.NoError(t, stop(), "exit code after SIGTERM")
	c.requireClean(t)
}

// client returns a client with a token, or without one.
func client(t *testing.T, ca []byte, token string) *http.Client {
	t.Helper()
	c, err := rest.HTTPClientFor(&rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}
