package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPatchCommand: the patch is printed on stdout alone, the changes on stderr, and errors have the next
// step.
func TestPatchCommand(t *testing.T) {
	const container = `{"kind": "DaemonSet", "spec": {"template": {"spec": {"containers": [{"name": "till"%s}]}}}}`
	objects := map[string]string{
		"/apis/apps/v1/namespaces/shop/daemonsets/till":   fmt.Sprintf(container, ""),
		"/apis/apps/v1/namespaces/shop/deployments/own":   fmt.Sprintf(container, `, "env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "a"}]`),
		"/apis/apps/v1/namespaces/default/statefulsets/a": fmt.Sprintf(container, ""),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if o, ok := objects[r.URL.Path]; ok {
			_, _ = fmt.Fprint(w, o)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters:
- {name: a, cluster: {server: %q}}
contexts:
- {name: shop, context: {cluster: a, namespace: shop}}
- {name: other, context: {cluster: a}}
current-context: shop
`, server.URL), 0o600))

	for _, tc := range []struct {
		args   []string
		code   int
		out    string
		errOut string
	}{
		{[]string{"daemonset/till"}, exitOK, `spec:
  template:
    spec:
      containers:
      - env:
        - name: KUBERNETES_SERVICE_HOST
          valueFrom:
            fieldRef:
              fieldPath: status.hostIP
        - name: KUBERNETES_SERVICE_PORT
          value: "6445"
        name: till
`, `container till: KUBERNETES_SERVICE_HOST: the cluster's -> the node's (status.hostIP)
container till: KUBERNETES_SERVICE_PORT: the cluster's -> 6445
apply it, which replaces the pods: kubectl patch daemonset till -n shop --patch-file FILE
`},
		{[]string{"ds/till", "--undo"}, exitFailure, "", "snapcache: daemonset/till in namespace shop: no container reads from the agent of its node: there is nothing to take back\n"},
		{[]string{"deploy/own"}, exitFailure, "", "snapcache: deployment/own in namespace shop: container till sets KUBERNETES_SERVICE_HOST itself, to a: it would be lost; " +
			"remove it first (kubectl edit deployment own -n shop)\n"},
		{[]string{"StatefulSets.apps/a"}, exitFailure, "", "snapcache: there is no statefulset a in namespace shop: see kubectl get statefulsets -A, and give -n NAMESPACE\n"},
		{[]string{"job/a"}, exitUsage, "", "snapcache: job is not daemonset, deployment or statefulset: patch the object that makes the pods\n"},
		{[]string{"till"}, exitUsage, "", "snapcache: give the object as KIND/NAME, as in daemonset/till\n"},
		{nil, exitUsage, "", "snapcache: give the object as KIND/NAME, as in daemonset/till\n"},
		{[]string{"ds/till", "--port", "0"}, exitUsage, "", "snapcache: --port 0: give a port between 1 and 65535\n"},
		{[]string{"ds/till", "--undo", "--port", "1"}, exitUsage, "", "snapcache: --undo takes back all that patch changes: leave out --port and --ca-configmap\n"},
	} {
		var out, errOut bytes.Buffer
		code := execute(append([]string{"snapcache", "patch", "--kubeconfig", file}, tc.args...), &out, &errOut)
		require.Equal(t, tc.code, code, "%v: %s", tc.args, errOut.String())
		require.Equal(t, tc.out, out.String(), "%v", tc.args)
		require.Equal(t, tc.errOut, errOut.String(), "%v", tc.args)
	}
	for _, args := range [][]string{{"sts/a", "-n", "default"}, {"sts/a", "--context", "other", "--ca-configmap", "fleet-ca"}} {
		var out, errOut bytes.Buffer
		require.Equal(t, exitOK, execute(append([]string{"snapcache", "patch", "--kubeconfig", file}, args...), &out, &errOut), errOut.String())
		require.Equal(t, len(args) > 3, bytes.Contains(out.Bytes(), []byte("fleet-ca")))
	}
	server.Close()
	var out, errOut bytes.Buffer
	require.Equal(t, exitFailure, execute([]string{"snapcache", "patch", "ds/till", "--kubeconfig", file}, &out, &errOut))
	require.Contains(t, errOut.String(), "check that the kube-apiserver runs there")
}
