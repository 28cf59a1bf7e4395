package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// chart is the Helm chart with a helm that installs it.
type chart struct {
	dir  string // of the chart
	file string // of the same, packed for a release
	helm string // path of the program
	env  []string
	cp   *controlplane.ControlPlane
}

// mode is one of the chart's, with the manifests that are the same.
type mode struct {
	name                 string
	kustomize, namespace string // their directories, the first may be elsewhere; of the namespace, which is not in the chart
	release              string
	values               []string
}

// TestChart lints, renders, installs, upgrades and uninstalls the Helm chart in each of its modes. What it
// renders has to be what the manifests for kustomize are.
func TestChart(t *testing.T) {
	root := harness.Root(t)
	c := &chart{dir: filepath.Join(root, "deploy", "helm", "snapcache"), cp: harness.ControlPlane(t, controlplane.Options{})}
	c.helm = strings.TrimSpace(output(t, "go", "-C", filepath.Join(root, "test", "node", "helm"), "tool", "-n", "helm"))
	c.env = append(harness.Environment(t.TempDir()), "KUBECONFIG="+harness.Kubeconfig(t, c.cp, controlplane.Admin))
	c.file = filepath.Join(dist(t, newVersion), "snapcache-chart.tgz")
	require.Contains(t, c.must(t, "show", "chart", c.file), "version: "+strings.TrimPrefix(newVersion, "v")+"\n")
	manifests := filepath.Join(root, "deploy", "kustomize")
	for _, m := range []mode{
		{"node", "base", "base", "snapcache", nil},
		{"node-api", "node-api", "base", "snapcache", []string{"-f", filepath.Join(c.dir, "values-node-api.yaml")}},
		{"node-api with an authority", authorityOverlay(t, manifests), "base", "snapcache", []string{
			"-f", filepath.Join(c.dir, "values-node-api.yaml"), "--set", "config.kubernetesAPI.signer=",
			"--set", "config.kubernetesAPI.authorityCertFile=/etc/authority/tls.crt", "--set", "config.kubernetesAPI.authorityKeyFile=/etc/authority/tls.key",
		}},
		{"spoke", "spoke", "base", "snapcache", []string{"-f", filepath.Join(c.dir, "values-spoke.yaml")}},
		{"hub", "hub", "hub", "snapcache-hub", []string{"-f", filepath.Join(c.dir, "values-hub.yaml")}},
	} {
		t.Run(m.name, func(t *testing.T) {
			c.must(t, append([]string{"lint", "--strict", c.dir}, m.values...)...)
			rendered := objectsOf(t, c.template(t, m))
			dir := m.kustomize
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(manifests, dir)
			}
			want := objectsOf(t, string(harness.Kubectl(t, c.cp, "kustomize", dir)))
			namespace := "Namespace /" + m.release
			require.Contains(t, want, namespace, "which helm makes of its own, without labels")
			delete(want, namespace)
			require.Equal(t, want, rendered)
			c.values(t, m)

			harness.Kubectl(t, c.cp, "apply", "-f", filepath.Join(manifests, m.namespace, "namespace.yaml"))
			c.life(t, m)
		})
	}
	for setting, want := range map[string]string{"mode=hup": "/mode", "tolerationz=1": "tolerationz"} {
		r := harness.RunToEnd(t, c.command(t, "template", "snapcache", c.dir, "--set", setting))
		require.NotZero(t, r.Code)
		require.Contains(t, r.Stderr, want)
	}
}

// authorityOverlay returns the directory of an overlay with the component for an authority.
func authorityOverlay(t *testing.T, manifests string) string {
	t.Helper()
	dir := t.TempDir()
	relative := func(name string) string {
		path, err := filepath.Rel(dir, filepath.Join(manifests, name))
		require.NoError(t, err)
		return path
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, `
resources: [%s]
components: [%s]
configMapGenerator:
- {name: snapcache, namespace: snapcache, behavior: merge, files: [agent.yaml]}
`, relative("node-api"), relative("authority")), 0o600))
	config := strings.Replace(string(harness.ReadFile(t, filepath.Join(manifests, "node-api", "agent.yaml"))), "signer: kubernetes.io/kubelet-serving",
		"signer: \"\"\n  authorityCertFile: /etc/authority/tls.crt\n  authorityKeyFile: /etc/authority/tls.key", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "agent.yaml"), []byte(config), 0o600))
	return dir
}

// values checks that each value arrives: the fields of the configuration in the file, as they are.
func (c *chart) values(t *testing.T, m mode) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
image: edge/snapcache:v1
config:
  history: {retention: 90m}
  relist: {confirmDeletions: 70}
  resources:
  - {resource: pods, fieldSelector: spec.nodeName=edge-1}
resources: {limits: {memory: 1234Mi}}
nodeSelector: {shop: "7"}
tolerations: [{operator: Exists}]
rbac:
  rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
  roles: {till: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]}
hub: {replicas: 3, storage: 7Gi, storageClassName: fast, serviceType: LoadBalancer}
`), 0o600))
	before, after := c.template(t, m), c.template(t, m, "-f", file)
	objects := objectsOf(t, after)
	var pod map[string]any
	for name, o := range objects {
		if strings.HasPrefix(name, "DaemonSet ") || strings.HasPrefix(name, "StatefulSet ") {
			pod, _, _ = unstructured.NestedMap(o, "spec", "template", "spec")
		}
	}
	container := pod["containers"].([]any)[0].(map[string]any)
	require.Equal(t, "edge/snapcache:v1", container["image"])
	require.Equal(t, "1234Mi", container["resources"].(map[string]any)["limits"].(map[string]any)["memory"])
	require.Equal(t, map[string]any{"shop": "7"}, pod["nodeSelector"])
	require.Equal(t, []any{map[string]any{"operator": "Exists"}}, pod["tolerations"])
	require.Contains(t, objects, "Role till/"+m.release)
	require.Equal(t, []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"list"}}}, objects["ClusterRole /"+m.release]["rules"])
	config := objects["ConfigMap "+m.release+"/"+m.release]["data"].(map[string]any)["agent.yaml"].(map[string]any)
	require.Equal(t, "90m", config["history"].(map[string]any)["retention"])
	require.EqualValues(t, 70, config["relist"].(map[string]any)["confirmDeletions"])
	require.Equal(t, []any{map[string]any{"resource": "pods", "fieldSelector": "spec.nodeName=edge-1"}}, config["resources"])
	if m.name == "hub" {
		set := objects["StatefulSet "+m.release+"/"+m.release]["spec"].(map[string]any)
		claim := set["volumeClaimTemplates"].([]any)[0].(map[string]any)["spec"].(map[string]any)
		service := objects["Service "+m.release+"/"+m.release]["spec"].(map[string]any)
		require.EqualValues(t, 3, set["replicas"])
		require.Equal(t, "fast", claim["storageClassName"])
		require.Equal(t, map[string]any{"requests": map[string]any{"storage": "7Gi"}}, claim["resources"])
		require.Equal(t, []any{"LoadBalancer", "Local"}, []any{service["type"], service["externalTrafficPolicy"]})
	}
	require.NotEqual(t, checksumOf(t, before), checksumOf(t, after), "a change of the configuration is a roll-out")
}

// life installs the chart, upgrades it with another configuration and uninstalls it.
func (c *chart) life(t *testing.T, m mode) {
	t.Helper()
	release := append([]string{m.release, c.file, "-n", m.release}, m.values...)
	out := c.must(t, append([]string{"install"}, release...)...)
	if m.name == "hub" {
		require.NotContains(t, strings.ToLower(out), "warning", "the restricted standard is met")
	}
	workload := map[string]string{"hub": "statefulset"}[m.name]
	if workload == "" {
		workload = "daemonset"
	}
	get := func(kind, path string) string {
		return string(harness.Kubectl(t, c.cp, "get", kind, m.release, "-n", m.release, "-o", "jsonpath={"+path+"}"))
	}
	require.Equal(t, "1", get(workload, ".metadata.generation"))
	require.NotContains(t, get("configmap", ".data"), "retention: 3h")
	c.must(t, append([]string{"upgrade"}, append(release, "--set", "config.history.retention=3h")...)...)
	require.Equal(t, "2", get(workload, ".metadata.generation"), "a roll-out")
	require.Contains(t, get("configmap", ".data"), "retention: 3h")
	require.Contains(t, c.must(t, "list", "-n", m.release), "deployed")

	manifest := filepath.Join(t.TempDir(), "manifest.yaml")
	created := c.must(t, "get", "manifest", m.release, "-n", m.release)
	require.NoError(t, os.WriteFile(manifest, []byte(created), 0o600))
	exist := func() []string {
		return strings.Fields(string(harness.Kubectl(t, c.cp, "get", "-f", manifest, "--ignore-not-found", "-o", "name")))
	}
	require.Len(t, exist(), len(objectsOf(t, created)))
	c.must(t, "uninstall", m.release, "-n", m.release)
	require.Empty(t, exist())
}

// template returns what the chart renders for a mode, with further arguments.
func (c *chart) template(t *testing.T, m mode, args ...string) string {
	t.Helper()
	return c.must(t, append(append([]string{"template", m.release, c.dir, "-n", m.release}, m.values...), args...)...)
}

func (c *chart) must(t *testing.T, args ...string) string {
	t.Helper()
	return string(harness.Output(t, c.command(t, args...)))
}

func (c *chart) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.helm, args...)
	cmd.Env = c.env
	return cmd
}

// objectsOf returns objects by kind, namespace and name, in a form in which the chart's and kustomize's are
// the same: the files in a ConfigMap are parsed, its name is without the hash that kustomize adds, and the
// pods are without the checksum that the chart has in its place.
func objectsOf(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	configMap := ""
	for d := yamlutil.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		var o unstructured.Unstructured
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if len(o.Object) == 0 {
			continue
		}
		if o.GetKind() == "ConfigMap" {
			configMap = o.GetName()
			o.SetName(o.GetNamespace()) // as all objects are called
			data := map[string]any{}
			for name, content := range o.Object["data"].(map[string]any) {
				var parsed any
				require.NoError(t, yaml.Unmarshal([]byte(content.(string)), &parsed), name)
				data[name] = parsed
			}
			o.Object["data"] = data
		}
		unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "annotations")
		all[fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())] = o.Object
	}
	require.NotEmpty(t, configMap)
	for _, o := range all {
		pod, found, err := unstructured.NestedMap(o, "spec", "template", "spec")
		require.NoError(t, err)
		if !found {
			continue
		}
		mounted := false
		for _, v := range pod["volumes"].([]any) {
			if volume := v.(map[string]any); volume["name"] == "config" {
				require.Equal(t, configMap, volume["configMap"].(map[string]any)["name"])
				volume["configMap"] = nil
				mounted = true
			}
		}
		require.True(t, mounted)
		require.NoError(t, unstructured.SetNestedMap(o, pod, "spec", "template", "spec"))
	}
	return jsonOf(t, all)
}

// jsonOf returns the objects with the types that JSON has, so that equal numbers are equal.
func jsonOf(t *testing.T, objects map[string]map[string]any) (same map[string]map[string]any) {
	t.Helper()
	data, err := json.Marshal(objects)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(bytes.NewReader(data)).Decode(&same))
	return same
}

// checksumOf returns the line with the checksum of the configuration.
func checksumOf(t *testing.T, text string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "checksum/config: ")
	require.True(t, found)
	return rest[:64]
}
