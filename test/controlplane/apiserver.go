package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// StartAPIServer starts the apiserver on the address it had, and waits until it
// is ready, the namespace kube-system exists and the client CA is published. etcd must run.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.startAPIServer(ctx)
}

// StopAPIServer stops the apiserver with SIGTERM: it refuses new connections, ends
// the watches and closes the connections it has. The error is [ErrKilled] if it did
// not end within Options.StopGrace.
func (cp *ControlPlane) StopAPIServer(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.own != nil {
		return cp.own.do(ctx, "kill")
	}
	return cp.apiserver.stop(ctx, cp.grace)
}

// KillAPIServer ends the apiserver with SIGKILL: connections break without notice.
func (cp *ControlPlane) KillAPIServer(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.own != nil {
		return cp.own.do(ctx, "kill")
	}
	return cp.apiserver.kill()
}

// RestartAPIServer stops the apiserver with SIGTERM, if it runs, and starts it. If it had to be
// killed, it is started too, and Options.Log gets a line. Its window of past events is empty
// afterwards: a watch from a resourceVersion below the one it started at gets 410 Expired.
func (cp *ControlPlane) RestartAPIServer(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.own != nil {
		return errors.Join(cp.own.do(ctx, "kill"), cp.startAPIServer(ctx))
	}
	if err := cp.stopForRestart(ctx, cp.apiserver); err != nil {
		return err
	}
	return cp.startAPIServer(ctx)
}

func (cp *ControlPlane) startAPIServer(ctx context.Context) error {
	if cp.own != nil {
		return errors.Join(cp.own.do(ctx, "start"), cp.own.await(ctx))
	}
	if cp.apiserver.running() {
		return fmt.Errorf("kube-apiserver: %w", ErrRunning)
	}
	if cp.etcdURL == "" && !cp.etcd.running() {
		return fmt.Errorf("kube-apiserver: etcd is %w", ErrStopped)
	}
	p, err := startProcess("kube-apiserver", cp.path("kube-apiserver.log"), cp.bin.APIServer, cp.apiserverArgs()...)
	if err != nil {
		return err
	}
	cp.apiserver = p
	ready, err := cp.apiserverReady()
	if err == nil {
		err = p.await(ctx, readyTimeout, ready)
	}
	if err != nil {
		return errors.Join(err, p.kill())
	}
	return nil
}

func (cp *ControlPlane) apiserverArgs() []string {
	args := []string{
		"--etcd-servers=" + cp.EtcdURL(),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(cp.apiPort.number),
		"--endpoint-reconciler-type=none", // refuses loopback addresses
		"--tls-cert-file=" + cp.path("pki", serverCertFile),
		"--tls-private-key-file=" + cp.path("pki", serverKeyFile),
		"--client-ca-file=" + cp.path("pki", clientCACertFile),
		"--token-auth-file=" + cp.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-account-key-file=" + cp.path("pki", accountKeyFile),
		"--service-account-signing-key-file=" + cp.path("pki", accountKeyFile),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=10.96.0.0/12",
		"--allow-privileged=true",
		// There are no controllers that create the objects which these plugins need.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds",
		// Tests measure their own load, not its distribution.
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=5000",
		"--max-mutating-requests-inflight=5000",
		"--profiling=false",
		// Without these a stop waits for clients to end their watches, up to a minute.
		"--shutdown-watch-termination-grace-period=1s",
		"--v=0",
	}
	return append(args, cp.args...)
}

// apiserverReady returns the check that StartAPIServer waits for.
func (cp *ControlPlane) apiserverReady() (func(context.Context) error, error) {
	config := cp.RESTConfig(Admin)
	config.Timeout = 5 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kube-apiserver: %w", err)
	}
	return func(ctx context.Context) error {
		if err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
		return err
	}, nil
}

// APIServerPID returns the process id of the apiserver, 0 if it does not run.
func (cp *ControlPlane) APIServerPID() int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if !cp.apiserver.running() {
		return 0
	}
	return cp.apiserver.cmd.Process.Pid
}
