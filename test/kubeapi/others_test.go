package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

var othersDir = flag.String("others", "", "the `directory` with the programs of TestOthers, see make test-others; empty to skip it")

// foreign is a program that others wrote, which is not changed.
type foreign struct {
	name string

	// read returns what it has read of a namespace, in an order of its own.
	read func(t *testing.T, o *othersRun, kubeconfig, namespace string) []string

	// wanted is a part of what it reads, so that nothing read is not taken for the same.
	wanted string
}

var others = []foreign{
	{"helm list", func(t *testing.T, o *othersRun, kubeconfig, namespace string) []string {
		t.Helper()
		return lines(o.run(t, kubeconfig, nil, "helm", "list", "-n", namespace, "-o", "json", "--time-format", "2006"))
	}, "shop"},
	{"helm get manifest, and status of what it made", func(t *testing.T, o *othersRun, kubeconfig, namespace string) []string {
		t.Helper()
		return append(lines(o.run(t, kubeconfig, nil, "helm", "get", "all", "shop", "-n", namespace)),
			lines(o.run(t, kubeconfig, nil, "helm", "status", "shop", "-n", namespace, "-o", "json"))...)
	}, "made-by-helm"},
	{"an informer of @kubernetes/client-node", func(t *testing.T, o *othersRun, kubeconfig, namespace string) []string {
		t.Helper()
		return lines(o.run(t, kubeconfig, nil, "node", o.script, namespace))
	}, "web-1"},
	{"an OpenTelemetry collector with k8sattributes in three pipelines", func(t *testing.T, o *othersRun, kubeconfig, namespace string) []string {
		t.Helper()
		return o.collect(t, kubeconfig, namespace)
	}, "resourceLogs k8s.pod.uid="},
	{"external-dns, of a headless Service", func(t *testing.T, o *othersRun, kubeconfig, _ string) []string {
		t.Helper()
		return o.records(t, kubeconfig)
	}, "host-web-1.web.example.com 0 IN A  10.3.0.2"},
	{"k9s", func(t *testing.T, o *othersRun, kubeconfig, namespace string) []string {
		t.Helper()
		return o.screens(t, kubeconfig, namespace)
	}, "web-0"},
	{"stern", func(t *testing.T, o *othersRun, kubeconfig, namespace string) []string {
		t.Helper()
		return o.follow(t, kubeconfig, namespace, len(othersPods))
	}, "web-0 › c"},
	{"mcp-server-kubernetes", func(t *testing.T, o *othersRun, kubeconfig, namespace string) []string {
		t.Helper()
		return o.ask(t, kubeconfig, namespace)
	}, "web-0"},
}

var othersPods = []string{"web-0", "web-1", "web-2", "z-last"}

// TestOthers runs programs that others wrote at a kube-apiserver and then at the agent: while the server can be reached,
// and after a restart of the agent without it. They read the same. A chart that helm installs through the agent is in
// the cluster.
func TestOthers(t *testing.T) {
	if *othersDir == "" {
		t.Skip("it needs programs from other repositories: make test-others")
	}
	resources := cachedResources()
	for _, r := range accessResources(true) { // by which the agent judges tokens and rights without the server
		if !slices.ContainsFunc(resources, func(x *resource) bool { return x.name() == r.name() }) {
			resources = append(resources, r)
		}
	}
	s := newSiteOf(t, shared.plane, resources, func(s *site) { s.access, s.forward = true, true })
	require.NoError(t, s.agent.await(t.Context(), s.resources))
	script, err := filepath.Abs(filepath.Join("testdata", "informer.cjs"))
	require.NoError(t, err)
	o := &othersRun{s: s, dir: *othersDir, script: script}
	p := newPlace(t, shared.plane, "others")
	for _, name := range othersPods {
		p.apply(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, labels: {app: web}}, "+
			"spec: {hostname: host-%[1]s, containers: [{name: c, image: i}]}, "+
			"status: {phase: Running, containerStatuses: [{name: c, image: i, imageID: i, "+
			"containerID: 'containerd://%[1]s', ready: true, restartCount: 0, state: {running: {}}}]}}", name))
	}
	p.apply(headless)
	admin := filepath.Join(s.dir, "admin.kubeconfig")
	config, err := clientcmd.LoadFromFile(s.cached)
	require.NoError(t, err)
	all := newUsers(t, "others-users", 6)[5] // it may do everything
	s.awaitUsers([]user{all})
	for _, info := range config.AuthInfos {
		info.Token = all.token
	}
	require.NoError(t, clientcmd.WriteToFile(*config, admin))

	o.run(t, admin, nil, "helm", "install", "shop", o.chart(t), "-n", "others", "--wait=false")
	_, err = p.objects(configMaps).Get(t.Context(), "made-by-helm", metav1.GetOptions{})
	require.NoError(t, err, "a chart that is installed through the agent is in the cluster")
	require.NoError(t, s.agent.await(t.Context(), s.resources))

	before := make(map[string][]string)
	for _, x := range others {
		before[x.name] = x.read(t, o, s.server, "others")
		require.Contains(t, strings.Join(before[x.name], "\n"), x.wanted, "%s at the kube-apiserver", x.name)
		require.Equal(t, before[x.name], x.read(t, o, admin, "others"), "%s at the agent", x.name)
	}
	o.logPrograms(t)
	s.link.Down()
	s.stop()
	s.start()
	for _, x := range others {
		require.Equal(t, before[x.name], x.read(t, o, admin, "others"), "%s, at an agent that was started without the server", x.name)
	}
	o.logPrograms(t)
	s.link.Up()
}

// othersRun is where the programs run.
type othersRun struct {
	s           *site
	dir, script string
}

// command returns a command with one of the programs.
func (o *othersRun) command(ctx context.Context, kubeconfig, name string, args ...string) *exec.Cmd {
	path := o.dir + ":" + filepath.Dir(o.s.KubectlPath()) + ":" + os.Getenv("PATH")
	cmd := exec.CommandContext(ctx, "env", append([]string{name}, args...)...)
	cmd.Dir = o.dir // node finds its modules here
	cmd.Env = []string{"HOME=" + o.s.dir, "KUBECONFIG=" + kubeconfig, "PATH=" + path}
	return cmd
}

// run runs a program to its end, which must be a good one, and returns its output.
func (o *othersRun) run(t *testing.T, kubeconfig string, stdin []byte, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := o.command(ctx, kubeconfig, name, args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %q: %s", name, args, stderr.String())
	return string(out)
}

// ask has an MCP server list the pods of a namespace, as a language model would.
func (o *othersRun) ask(t *testing.T, kubeconfig, namespace string) []string {
	t.Helper()
	request := func(id int, method string, params any) []byte {
		b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
		require.NoError(t, err)
		return append(b, '\n')
	}
	stdin := slices.Concat(
		request(1, "initialize", map[string]any{
			"protocolVersion": "2024-11-05", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"},
		}),
		[]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"),
		request(2, "tools/call", map[string]any{
			"name": "kubectl_get", "arguments": map[string]any{"resourceType": "pods", "namespace": namespace, "output": "json"},
		}),
	)
	out := o.run(t, kubeconfig, stdin, "sh", "-c", "(cat; sleep 20) | timeout 30 npx --no-install mcp-server-kubernetes || true")
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, `"id":2`) {
			return []string{line}
		}
	}
	t.Fatalf("no answer: %s", out)
	return nil
}

// chart returns a chart with one object.
func (o *othersRun) chart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "templates"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte("apiVersion: v2\nname: shop\nversion: 1.0.0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "templates", "cm.yaml"),
		[]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made-by-helm}\ndata: {served: {{ .Capabilities.APIVersions.Has \"apps/v1\" | quote }} }\n"), 0o600))
	return dir
}

// logPrograms logs what each program has asked the agent, and what the server has seen of it.
func (o *othersRun) logPrograms(t *testing.T) {
	t.Helper()
	status, err := o.s.agent.status.Status(t.Context())
	require.NoError(t, err)
	for _, p := range status.Agent.Programs {
		t.Logf("%s: %d requests and %d watches answered by the agent, %d forwarded", p.Name, p.Requests, p.Watches, p.Forwarded)
	}
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
