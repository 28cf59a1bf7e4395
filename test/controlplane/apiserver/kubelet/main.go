// Command kubelet is the code of a kubelet on a container runtime that runs nothing, as kubemark has
// it. Other than kubemark's, its server has TLS, so that an apiserver can reach it, and its containers
// have a line of logs and commands that return their input.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
)

const address = "127.0.0.1"

func main() {
	kubeconfig := flag.String("kubeconfig", "", "`FILE` with the server and the node's credentials")
	name := flag.String("name", "", "name of the node")
	dir := flag.String("dir", "", "`FOLDER` of the kubelet's files")
	port := flag.Int("port", 0, "port of the server that has logs and exec, with TLS, without authentication")
	readOnly := flag.Int("read-only-port", 0, "port of the server that has /pods, without TLS")
	klog.InitFlags(nil)
	flag.Parse()
	flags, config := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{
		NodeName: *name, KubeletPort: *port, KubeletReadOnlyPort: *readOnly, MaxPods: 250,
	})
	flags.RootDirectory, config.PodLogsDir = filepath.Join(*dir, "root"), filepath.Join(*dir, "logs")
	config.Address = address
	// A kubelet that looks for its address takes none of loopback; this one keeps its Node's.
	flags.CloudProvider = "external"

	client, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	client.ContentType, client.QPS, client.Burst = "application/vnd.kubernetes.protobuf", 50, 100 // as a kubelet's
	heartbeat := *client
	heartbeat.QPS, heartbeat.Timeout = -1, config.NodeStatusUpdateFrequency.Duration
	runtime, err := newContainerRuntime()
	if err != nil {
		log.Fatal(err)
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(address, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		log.Fatal(err)
	}
	k := kubemark.NewHollowKubelet(flags, config, kubernetes.NewForConfigOrDie(client), kubernetes.NewForConfigOrDie(&heartbeat),
		&cadvisortest.Fake{NodeName: *name}, apitest.NewFakeImageService(), runtime, cm.NewStubContainerManager())
	k.KubeletDeps.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}}
	k.Run(context.Background()) // does not return
}

// containerRuntime has containers that only exist.
type containerRuntime struct {
	*apitest.FakeRuntimeService
	streams streaming.Server
}

func newContainerRuntime() (*containerRuntime, error) {
	r := &containerRuntime{FakeRuntimeService: apitest.NewFakeRuntimeService()}
	r.FakeStatus = &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: true},
	}}
	free, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.Addr = free.Addr().String() // the server has to know it before it listens
	if r.streams, err = streaming.NewServer(config, commands{}); err != nil {
		return nil, err
	}
	if err := free.Close(); err != nil {
		return nil, err
	}
	go func() { log.Fatal(r.streams.Start(true)) }()
	return r, nil
}

// CreateContainer creates a container that has logged its name. The kubelet's log has it too.
func (r *containerRuntime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, of *runtimeapi.PodSandboxConfig) (string, error) {
	id, err := r.FakeRuntimeService.CreateContainer(ctx, sandbox, config, of)
	if err != nil {
		return "", err
	}
	path := filepath.Join(of.LogDirectory, config.LogPath)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	line := fmt.Sprintf("%s stdout F this is %s of %s\n", time.Now().Format(time.RFC3339Nano), config.Metadata.Name, of.Metadata.Name)
	if err := os.WriteFile(path, []byte(line), 0o644); err != nil {
		return "", err
	}
	r.Lock()
	defer r.Unlock()
	r.Containers[id].LogPath = path
	log.Printf("created container %s", id)
	return id, nil
}

// StopContainer stops a container, and logs its name.
func (r *containerRuntime) StopContainer(ctx context.Context, id string, timeout int64) error {
	log.Printf("stopped container %s", id)
	return r.FakeRuntimeService.StopContainer(ctx, id, timeout)
}

func (r *containerRuntime) Exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return r.streams.GetExec(req)
}

func (r *containerRuntime) Attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return r.streams.GetAttach(req)
}

func (r *containerRuntime) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.streams.GetPortForward(req)
}

// commands runs the commands of all containers: they return their arguments and their input.
type commands struct{}

func (commands) Exec(_ context.Context, _ string, args []string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	if out != nil {
		fmt.Fprintln(out, strings.Join(args, " "))
	}
	return echo(in, out)
}

func (commands) Attach(_ context.Context, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	return echo(in, out)
}

func (commands) PortForward(_ context.Context, _ string, _ int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	return echo(stream, stream)
}

func echo(in io.Reader, out io.Writer) error {
	if in == nil || out == nil {
		return nil
	}
	_, err := io.Copy(out, in)
	return err
}
