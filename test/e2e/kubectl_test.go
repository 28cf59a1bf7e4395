package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestKubectlAcceptsDump feeds the output of dump to kubectl, and compares the other
// formats with it.
func TestKubectlAcceptsDump(t *testing.T) {
	t.Parallel()
	cp, a := startQuiet(t)
	x := a.site
	a.stop() // reads from the file use the same code on another source

	names := lines(kubectl(t, cp, nil, "get", strings.Join(everyID, ","), "-A", "-o", "name"))
	got := kubectl(t, cp, x.must("dump", "-o", "json"), "get", "-f", "-", "-o", "name")
	require.ElementsMatch(t, names, lines(got), "kubectl get -f of JSON")
	require.ElementsMatch(t, names, lines(x.must("dump", "-o", "name")), "names")

	// kubectl needs time for each object, so it gets only some.
	names = lines(x.must("dump", "pods", "-n", "shop-0001", "-o", "name"))
	applied := kubectl(t, cp, x.must("dump", "pods", "-n", "shop-0001", "-o", "yaml"), "apply", "--dry-run=client", "-f", "-", "-o", "name")
	require.ElementsMatch(t, names, lines(applied), "kubectl apply of YAML")

	for id, want := range allOnServer(t, cp, everyID...) {
		requireSame(t, id+" as ndjson", want, decodeStream(t, x.must("dump", id, "-o", "ndjson")))
		// kubectl converts YAML to JSON.
		asJSON := kubectl(t, cp, x.must("dump", id), "create", "--dry-run=client", "-f", "-", "-o", "json", "--show-managed-fields")
		requireSame(t, id+" as YAML", want, decodeStream(t, asJSON))
	}
}

// TestDumpSelects compares the selections of dump with those of kubectl.
func TestDumpSelects(t *testing.T) {
	t.Parallel()
	cp, a := startQuiet(t)
	x := a.site
	for _, from := range []string{"socket", "file"} {
		if from == "file" {
			a.stop()
		}
		for _, args := range [][]string{
			{"pods", "-n", "shop-0001"},
			{"pods", "-n", "none"},
			{"pods", "-l", "app.kubernetes.io/managed-by=fleet"},
			{"pods", "-l", "example.com/tier notin (backend),pod-template-hash"},
			{"pods", "-n", "shop-0002", "-l", "!example.com/none"},
			{"nodes", "-n", "shop-0001"}, // the namespace does not matter
			{"configmaps", "-n", "kube-system"},
		} {
			what := fmt.Sprintf("%s, from the %s", strings.Join(args, " "), from)
			get := append([]string{"get", "-o", "json"}, args...)
			if !slices.Contains(args, "-n") {
				get = append(get, "-A")
			}
			out, err := cp.Kubectl(t.Context(), get...)
			require.NoError(t, err, what)
			requireSame(t, what, decodeList(t, out), decodeList(t, x.must(append([]string{"dump", "-o", "json"}, args...)...)))
		}
	}
}

// TestIndexes compares the output of inspect about the indexes with the objects.
func TestIndexes(t *testing.T) {
	t.Parallel()
	cp, a := startQuiet(t)
	x := a.site
	pods := onServer(t, cp, "pods")
	for _, from := range []string{"socket", "file"} {
		if from == "file" {
			a.stop()
		}
		for _, c := range []struct {
			index string
			value func(*unstructured.Unstructured) string
		}{
			{"namespace", (*unstructured.Unstructured).GetNamespace},
			{"app", func(o *unstructured.Unstructured) string { return o.GetLabels()["app.kubernetes.io/name"] }},
			{"node", func(o *unstructured.Unstructured) string {
				name, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
				return name
			}},
		} {
			want := make(map[string][]string)
			for key, o := range pods {
				v := c.value(&unstructured.Unstructured{Object: o})
				want[v] = append(want[v], key)
			}
			got := x.inspectIndex("pods", c.index)
			require.Len(t, got, len(want), "%s, from the %s", c.index, from)
			for v, keys := range want {
				require.Equal(t, len(keys), got[v], "%s %s, from the %s", c.index, v, from)
				require.ElementsMatch(t, keys, x.inspectKeys("pods", "--index", c.index, v), "%s %s, from the %s", c.index, v, from)
			}
		}
		require.ElementsMatch(t, keysOf(pods), x.inspectKeys("pods", "--keys"), "from the %s", from)
	}
}

// kubectl runs kubectl as the admin, with an input.
func kubectl(t *testing.T, cp *controlplane.ControlPlane, stdin []byte, args ...string) []byte {
	t.Helper()
	cmd := kubectlCommand(t, cp, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	return harness.Output(t, cmd)
}

func kubectlCommand(t *testing.T, cp *controlplane.ControlPlane, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cp.KubectlPath(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+harness.Kubeconfig(t, cp, controlplane.Admin), "HOME="+cp.Dir())
	return cmd
}

func lines(b []byte) []string {
	text := strings.TrimSuffix(string(b), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// inspectIndex returns the number of objects that inspect counts under each value.
func (x *site) inspectIndex(id, index string) map[string]int {
	x.t.Helper()
	var answers []struct {
		Collection, Index string
		Values            []localapi.IndexValue
	}
	x.inspect(&answers, id, "--index", index)
	require.Len(x.t, answers, 1)
	require.Equal(x.t, id, answers[0].Collection)
	require.Equal(x.t, index, answers[0].Index)
	counts := make(map[string]int)
	for _, v := range answers[0].Values {
		counts[v.Value] = int(v.Objects)
	}
	return counts
}

// inspectKeys returns the keys that inspect lists.
func (x *site) inspectKeys(id string, args ...string) []string {
	x.t.Helper()
	var answers []struct {
		Collection string
		Keys       []localapi.Key
	}
	x.inspect(&answers, append([]string{id}, args...)...)
	require.Len(x.t, answers, 1)
	require.Equal(x.t, id, answers[0].Collection)
	names := make([]string, len(answers[0].Keys))
	for i, k := range answers[0].Keys {
		names[i] = k.Key
	}
	return names
}

func (x *site) inspect(into any, args ...string) {
	x.t.Helper()
	out := x.must(append(append([]string{"inspect"}, args...), "-o", "json")...)
	require.NoError(x.t, json.Unmarshal(out, into), "%.300s", out)
}
