package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// Options are the settings of a control plane. The zero value starts an empty one in a temporary
// folder.
type Options struct {
	// Dir is the folder of etcd's data, certificates, tokens and logs. A folder that was used
	// before continues with its data. Empty means a temporary folder, which Stop removes.
	Dir string
	// EtcdData is a folder made by [ControlPlane.SaveEtcd]. It is copied. It is ignored if Dir
	// has data already.
	EtcdData string
	// EtcdURL is the address of another control plane's etcd, or of a proxy to it, to use in
	// place of an etcd of its own: two apiservers of one cluster.
	EtcdURL string
	// Own is the folder, made by [SaveOwn], of a server that the test did not start: it is put back to its first state, and
	// is used in place of servers of its own. EtcdData, Binaries, Port and APIServerArgs have no effect then, and its
	// datastore has no copy that goes ahead.
	Own string
	// Binaries are the servers to start, see [Servers]; nil means the result of [Build].
	Binaries *Binaries
	// Port is the apiserver's port on 127.0.0.1; 0 means a free one.
	Port int
	// APIServerArgs are flags appended to the apiserver's, "--name=value". A list is appended to, so
	// that "--authorization-mode=Node" adds the node authorizer.
	APIServerArgs []string
	// StopGrace is the time that a server has to end by itself before it is killed; 0 means 30 s.
	StopGrace time.Duration
	// Log gets plain lines about slow steps; nil discards them. The servers' own output is in
	// the files etcd.log and kube-apiserver.log in Dir.
	Log io.Writer
}

// ControlPlane is one etcd with one kube-apiserver. It is safe for concurrent use; methods that
// stop or start a server are serialized.
type ControlPlane struct {
	dir       string
	temporary bool // whether Stop removes dir
	bin       Binaries
	args      []string
	log       io.Writer
	grace     time.Duration
	lock      io.Closer // of dir
	caData    []byte
	clientCA  *tls.Certificate

	clientCAFile string            // its certificate
	tokens       map[string]string // by user

	etcdPort port
	apiPort  port
	etcdURL  string // of another control plane's etcd; empty if it has its own
	own      *own   // in place of servers that this process runs
	ownAdmin *Client

	mu        sync.Mutex // guards the fields below; held for whole stops and starts
	etcd      *process
	apiserver *process
}

// Start starts a control plane, and builds its programs if they are missing and not given. It returns when the apiserver is
// ready, the namespace kube-system exists and the users have their rights. ctx bounds the start
// only, not the lifetime of the servers.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.StopGrace == 0 {
		o.StopGrace = defaultGrace
	}
	if o.Binaries == nil {
		built, err := Build(ctx, o.Log)
		if err != nil {
			return nil, err
		}
		o.Binaries = &built
	}
	cp := &ControlPlane{bin: *o.Binaries, args: o.APIServerArgs, log: o.Log, grace: o.StopGrace, etcdURL: o.EtcdURL}
	if err := cp.prepare(ctx, o); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	if err := cp.startAll(ctx); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return cp, nil
}

// prepare makes the folder, the credentials and the reservations.
func (cp *ControlPlane) prepare(ctx context.Context, o Options) error {
	var err error
	if o.Dir == "" {
		cp.temporary = true
		if cp.dir, err = os.MkdirTemp("", "controlplane-"); err != nil {
			return fmt.Errorf("control plane's folder: %w", err)
		}
	} else {
		if cp.dir, err = filepath.Abs(o.Dir); err != nil {
			return fmt.Errorf("control plane's folder: %w", err)
		}
		if err := os.MkdirAll(cp.dir, 0o700); err != nil {
			return fmt.Errorf("control plane's folder: %w", err)
		}
	}
	if cp.lock, err = tryLock(cp.path("lock")); err != nil {
		return fmt.Errorf("control plane's folder: %w", err)
	}
	if err := writePKI(cp.path("pki")); err != nil {
		return err
	}
	if o.Own != "" {
		return cp.prepareOwn(ctx, o.Own)
	}
	if cp.caData, err = os.ReadFile(cp.path("pki", caCertFile)); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	if cp.clientCA, cp.clientCAFile, err = loadClientCA(cp.path("pki")); err != nil {
		return err
	}
	if cp.tokens, err = loadTokens(cp.path("tokens.csv")); err != nil {
		return err
	}
	if cp.etcdPort, err = reservePort(0); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if cp.apiPort, err = reservePort(o.Port); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	if o.EtcdData == "" {
		return nil
	}
	if _, err := os.Stat(cp.etcdDir()); err == nil {
		return nil
	}
	return copyData(cp.etcdDir(), o.EtcdData)
}

func (cp *ControlPlane) startAll(ctx context.Context) error {
	if cp.own != nil {
		if err := cp.startOwn(ctx); err != nil {
			return fmt.Errorf("own server: %w", err)
		}
		return cp.bindReader(ctx)
	}
	if cp.etcdURL == "" {
		if err := cp.StartEtcd(ctx); err != nil {
			return err
		}
	}
	if err := cp.StartAPIServer(ctx); err != nil {
		return err
	}
	return cp.bindReader(ctx)
}

// Stop ends both servers and removes the folder if it is a temporary one. A
// stopped control plane cannot be started again; its folder can, by [Start].
func (cp *ControlPlane) Stop() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*cp.grace)
	defer cancel()
	var errs []error
	if cp.temporary {
		// The folder is removed: the servers need not write their data.
		errs = append(errs, cp.apiserver.kill(), cp.etcd.kill())
	} else {
		errs = append(errs, cp.apiserver.stop(ctx, cp.grace), cp.etcd.stop(ctx, cp.grace))
	}
	cp.apiPort.release()
	cp.etcdPort.release()
	if cp.lock != nil {
		cp.lock.Close() // a second Stop closes it again, without effect
	}
	if cp.temporary && cp.dir != "" {
		errs = append(errs, os.RemoveAll(cp.dir))
	}
	return errors.Join(errs...)
}

// stopForRestart stops a process that is about to be started again. If it had to be killed, that is
// not an error, unless ctx has ended.
func (cp *ControlPlane) stopForRestart(ctx context.Context, p *process) error {
	err := p.stop(ctx, cp.grace)
	if !errors.Is(err, ErrKilled) || ctx.Err() != nil {
		return err
	}
	fmt.Fprintln(cp.log, err)
	return nil
}

// URL returns the apiserver's address, which stays the same over restarts.
func (cp *ControlPlane) URL() string {
	if cp.own != nil {
		return cp.own.admin.Host
	}
	return "https://" + cp.apiPort.address()
}

// Own reports whether the server is one of [Options.Own].
func (cp *ControlPlane) Own() bool { return cp.own != nil }

// Dir returns the control plane's folder, see [Options].
func (cp *ControlPlane) Dir() string { return cp.dir }

// Kubectl runs kubectl as [Admin] and returns its standard output. The error contains its standard
// error.
func (cp *ControlPlane) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	kubeconfig, err := cp.Kubeconfig(Admin)
	if err != nil {
		return nil, err
	}
	if err := cp.need(ctx, kubectl, &cp.bin.Kubectl); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, cp.bin.Kubectl, args...)
	// kubectl's discovery cache is below HOME; the caller's must have no effect.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+cp.dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("kubectl %q: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// need builds a program that was not built when the control plane was started.
func (cp *ControlPlane) need(ctx context.Context, p program, path *string) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if *path != "" {
		return nil
	}
	paths, err := buildAll(ctx, cp.log, []program{p})
	*path = paths[p.name]
	return err
}

// KubectlPath returns the path of the built kubectl.
func (cp *ControlPlane) KubectlPath() string { return cp.bin.Kubectl }

func (cp *ControlPlane) path(parts ...string) string {
	return filepath.Join(append([]string{cp.dir}, parts...)...)
}

// readyTimeout bounds the time until a server is ready. It is generous because tests run several
// servers at once on small machines.
const readyTimeout = 4 * time.Minute
