package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// hollowKubelet is a kubelet whose container runtime runs nothing.
type hollowKubelet struct {
	*harness.Process
	address string // of its server for the kube-apiserver
}

func startKubelet(t *testing.T, kubeconfig, dir string) *hollowKubelet {
	t.Helper()
	path, _, err := controlplane.BuildNode(t.Context(), os.Stderr)
	require.NoError(t, err)
	address, readOnly := harness.FreeAddress(t), harness.FreeAddress(t)
	port := func(address string) string { return address[strings.LastIndex(address, ":")+1:] }
	cmd := exec.Command(path, "--kubeconfig", kubeconfig,
		"--name", nodeName, "--dir", dir, "--port", port(address), "--read-only-port", port(readOnly))
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	return &hollowKubelet{address: address, Process: harness.Start(t, cmd)}
}

// running returns the names of the pods that run, as the container runtime has them.
func (k *hollowKubelet) running(ctx context.Context) ([]string, error) {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} //nolint:gosec // its certificate is signed by itself
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+k.address+"/runningpods/", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list corev1.PodList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, err
	}
	var names []string
	for _, p := range list.Items {
		if len(p.Spec.Containers) > 0 { // else it has only a sandbox
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	return names, nil
}

// containerEvent matches a line of the kubelet's log.
var containerEvent = regexp.MustCompile(`(created|stopped) container ([^_\s]+)_([^_\s]+)_\S*`)

// containers returns how often containers of the pods were created and stopped since the start.
func (k *hollowKubelet) containers() (created, stopped map[string]int) {
	created, stopped = map[string]int{}, map[string]int{}
	for _, m := range containerEvent.FindAllStringSubmatch(k.Output(), -1) {
		of := map[string]map[string]int{"created": created, "stopped": stopped}[m[1]]
		of[m[3]+"/"+m[2]]++
	}
	return created, stopped
}

// kubeProxy is a kube-proxy with rules in a network of its own, where it reaches only its server.
type kubeProxy struct {
	*harness.Process
	net *network
}

func startKubeProxy(t *testing.T, kubeconfig string) *kubeProxy {
	t.Helper()
	_, path, err := controlplane.BuildNode(t.Context(), os.Stderr)
	require.NoError(t, err)
	server, err := url.Parse(restConfig(t, kubeconfig).Host)
	require.NoError(t, err)
	p := &kubeProxy{net: newNetwork(t, server.Host)}
	// Zero leaves the limits of connections as they are: they are those of the machine.
	cmd := exec.Command(path, "--kubeconfig", kubeconfig, "--hostname-override", nodeName, "--proxy-mode", "nftables",
		"--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0",
		"--healthz-bind-address", "127.0.0.1:10256", "--metrics-bind-address", "127.0.0.1:10249")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	log := filepath.Join(t.TempDir(), "kube-proxy.log")
	harness.ShowLog(t, log)
	require.NoError(t, p.net.do(func() (err error) {
		p.Process, err = harness.StartProcess(cmd, log)
		return err
	}))
	t.Cleanup(p.Process.Kill)
	return p
}

// Kill ends kube-proxy and its network, with the rules.
func (p *kubeProxy) Kill() {
	p.Process.Kill()
	p.net.close()
}

var (
	servedPort = regexp.MustCompile(`([\d.]+) \. (tcp|udp) \. (\d+)(?: comment "[^"]*")? : goto`)
	endpointTo = regexp.MustCompile(`\d+ : ([\d.]+) \. (\d+)`)
)

// rules returns the ports of services, and the endpoints, for which there are rules.
func (p *kubeProxy) rules(ctx context.Context) (ports, endpoints map[string]bool, err error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "nft", "list", "ruleset")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := p.net.do(cmd.Run); err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, &out)
	}
	ports, endpoints = map[string]bool{}, map[string]bool{}
	for _, m := range servedPort.FindAllStringSubmatch(out.String(), -1) {
		ports[m[1]+":"+m[3]+"/"+m[2]] = true
	}
	for _, m := range endpointTo.FindAllStringSubmatch(out.String(), -1) {
		endpoints[m[1]+":"+m[2]] = true
	}
	return ports, endpoints, nil
}

// network is a network namespace, in which one address of the machine can be reached.
type network struct {
	calls chan func()
	link  *harness.Network
	once  sync.Once
}

// hasNetworks reports whether the machine lets the test make networks with rules.
func hasNetworks() bool {
	_, err := exec.LookPath("nft")
	return err == nil && os.Geteuid() == 0
}

// newNetwork returns a network of its own, until it is closed or the test ends.
func newNetwork(t *testing.T, address string) *network {
	t.Helper()
	n := &network{calls: make(chan func()), link: harness.NetworkAt(t, address, address)}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread, and with it the namespace, ends with the goroutine
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		if err == nil {
			err = exec.Command("ip", "link", "set", "lo", "up").Run()
		}
		made <- err
		for f := range n.calls {
			f()
		}
	}()
	require.NoError(t, <-made)
	t.Cleanup(n.close)
	require.NoError(t, n.do(func() error { n.link.Up(); return nil }))
	return n
}

// do calls a function in the network: its listeners and the programs that it starts are there.
func (n *network) do(f func() error) error {
	result := make(chan error, 1)
	n.calls <- func() { result <- f() }
	return <-result
}

func (n *network) close() {
	n.once.Do(func() {
		n.link.Down()
		close(n.calls)
	})
}

// readAll returns the lines of a file after an offset.
func readAll(t *testing.T, path string, offset int64) []byte {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Seek(offset, io.SeekStart)
	require.NoError(t, err)
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	return b
}
