package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// BinEnv is the environment variable that overrides the folder of [Build]'s programs,
// <repository>/.build/controlplane.
const BinEnv = "SNAPCACHE_CONTROLPLANE_BIN"

// Binaries are the paths of the built programs.
type Binaries struct {
	Etcd      string
	Etcdutl   string
	Kine      string // in place of Etcd and Etcdutl
	APIServer string
	Kubectl   string
}

// program is one binary to build.
type program struct {
	name   string
	module string // folder of the module that pins it
	pkg    string // its main package
	pin    string // module whose version it carries
	tags   string // build tags
	cgo    bool   // whether it needs a C compiler
	stamp  bool   // whether the linker must set its version
	took   string // duration of the first build, for the progress line

	version string // instead of module: the version of pin, in a module written by [writeModule]
}

var (
	etcd = program{
		name: "etcd", module: "etcd", pkg: "go.etcd.io/etcd/server/v3", pin: "go.etcd.io/etcd/server/v3", took: "1 minute",
	}
	etcdutl = program{
		name: "etcdutl", module: "etcd", pkg: "go.etcd.io/etcd/etcdutl/v3", pin: "go.etcd.io/etcd/etcdutl/v3", took: "10 seconds",
	}
	kine = program{
		name: "kine", module: "kine", pkg: "github.com/k3s-io/kine", pin: "github.com/k3s-io/kine", cgo: true, took: "2 minutes",
	}
	apiserver = program{
		name: "kube-apiserver", module: "apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", pin: "k8s.io/kubernetes",
		stamp: true, took: "4 to 7 minutes",
	}
	kubectl = program{
		name: "kubectl", module: "apiserver", pkg: "k8s.io/kubernetes/cmd/kubectl", pin: "k8s.io/kubernetes",
		stamp: true, took: "1 minute",
	}
	kubelet = program{
		name: "kubelet", module: "apiserver", pkg: "./kubelet", pin: "k8s.io/kubernetes",
		stamp: true, took: "2 minutes",
	}
	kubeProxy = program{
		name: "kube-proxy", module: "apiserver", pkg: "k8s.io/kubernetes/cmd/kube-proxy", pin: "k8s.io/kubernetes",
		stamp: true, took: "30 seconds",
	}
	coredns = program{
		name: "coredns", module: "coredns", pkg: ".", pin: "github.com/coredns/coredns", took: "1 to 2 minutes",
	}
	prometheus = program{
		name: "prometheus", module: "prometheus", pkg: "github.com/prometheus/prometheus/cmd/prometheus", pin: "github.com/prometheus/prometheus",
		tags: "remove_all_sd,enable_kubernetes_sd", took: "2 minutes",
	}
)

// Build returns the programs of a control plane, and builds the missing ones with the go command. [ServerEnv] picks
// another server than the pinned one.
// The name of a build has a hash of the module's go.mod and go.sum, so that another version is
// another build. Any number of processes may call Build at once: one builds, the others wait.
//
// The first time takes 5 to 9 minutes on two cores, which is close to the
// timeout that "go test" has by default: build before testing.
func Build(ctx context.Context, log io.Writer) (Binaries, error) {
	server, err := chosenServer()
	if err != nil {
		return Binaries{}, err
	}
	return BuildServer(ctx, log, server)
}

// BuildServer returns the programs of a control plane with this server, and builds them like [Build].
func BuildServer(ctx context.Context, log io.Writer, server Server) (Binaries, error) {
	programs, err := server.programs()
	if err != nil {
		return Binaries{}, err
	}
	paths, err := buildAll(ctx, log, programs)
	return Binaries{
		Etcd: paths[etcd.name], Etcdutl: paths[etcdutl.name], Kine: paths[kine.name],
		APIServer: paths[apiserver.name], Kubectl: paths[kubectl.name],
	}, err
}

// BuildCoreDNS returns the path of CoreDNS, a client of a control plane, and builds it like [Build].
func BuildCoreDNS(ctx context.Context, log io.Writer) (string, error) {
	paths, err := buildAll(ctx, log, []program{coredns})
	return paths[coredns.name], err
}

// BuildPrometheus returns the path of a Prometheus that discovers targets in Kubernetes alone, and builds
// it like [Build].
func BuildPrometheus(ctx context.Context, log io.Writer) (string, error) {
	paths, err := buildAll(ctx, log, []program{prometheus})
	return paths[prometheus.name], err
}

// BuildNode returns the paths of a kubelet, on a container runtime that runs nothing, and of
// kube-proxy, and builds them like [Build]: for two minutes, after the apiserver.
func BuildNode(ctx context.Context, log io.Writer) (kubeletPath, kubeProxyPath string, err error) {
	paths, err := buildAll(ctx, log, []program{kubelet, kubeProxy})
	return paths[kubelet.name], paths[kubeProxy.name], err
}

// buildAll builds the missing programs, and returns the paths of all by their names.
func buildAll(ctx context.Context, log io.Writer, programs []program) (map[string]string, error) {
	if log == nil {
		log = io.Discard
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	base := os.Getenv(BinEnv)
	if base == "" {
		base = filepath.Join(root, ".build", "controlplane")
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, fmt.Errorf("build folder: %w", err)
	}

	found, missing, err := findPrograms(root, base, programs)
	if err != nil || len(missing) == 0 {
		return found, err
	}
	lock, err := waitLock(ctx, filepath.Join(base, "lock"), func() {
		fmt.Fprintln(log, "another process is building: waiting for it")
	})
	if err != nil {
		return nil, fmt.Errorf("build lock: %w", err)
	}
	defer lock.Close()

	// The process that held the lock may have built all programs.
	found, missing, err = findPrograms(root, base, programs)
	if err != nil {
		return nil, err
	}
	for _, m := range missing {
		if err := m.build(ctx, log); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// missingProgram is a program that is not built yet.
type missingProgram struct {
	program
	version string
	source  string // folder of its module; empty for one that is written
	target  string // path of the binary
}

// findPrograms returns the paths of all programs by their names, and the programs that are missing.
func findPrograms(root, base string, programs []program) (map[string]string, []missingProgram, error) {
	found := make(map[string]string)
	var missing []missingProgram
	for _, p := range programs {
		source, version, target := "", p.version, filepath.Join(base, p.name+"-"+p.version, p.name)
		if version == "" {
			source = filepath.Join(root, sourceDir, p.module)
			v, hash, err := p.readModule(source)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", p.name, err)
			}
			version, target = v, filepath.Join(base, p.module+"-"+v+"-"+hash, p.name)
		}
		found[p.name] = target
		switch _, err := os.Stat(target); {
		case errors.Is(err, os.ErrNotExist):
			missing = append(missing, missingProgram{program: p, version: version, source: source, target: target})
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return found, missing, nil
}

// readModule returns the version of the pinned dependency of the program's module in dir, and a hash
// of all its versions and of its main.go.
func (p program) readModule(dir string) (version, hash string, err error) {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", "", fmt.Errorf("read module: %w", err)
	}
	m := regexp.MustCompile(`(?m)^(?:require|\t)\s*` + regexp.QuoteMeta(p.pin) + ` (v\S+)`).FindSubmatch(mod)
	if m == nil {
		return "", "", fmt.Errorf("%s does not require %s", filepath.Join(dir, "go.mod"), p.pin)
	}
	rest := []string{"go.sum"}
	if strings.HasPrefix(p.pkg, ".") { // a main.go of the module's own
		rest = append(rest, filepath.Join(p.pkg, "main.go"))
	}
	hashed := mod
	for _, name := range rest {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", "", fmt.Errorf("read module: %w", err)
		}
		hashed = append(hashed, b...)
	}
	digest := sha256.Sum256(hashed)
	return string(m[1]), hex.EncodeToString(digest[:4]), nil
}

// build builds the program; its file appears by a rename, when it is complete.
func (m missingProgram) build(ctx context.Context, log io.Writer) error {
	fmt.Fprintf(log, "building %s %s: the first time takes about %s on two cores\n", m.name, m.version, m.took)
	began := time.Now()
	if err := os.MkdirAll(filepath.Dir(m.target), 0o755); err != nil {
		return fmt.Errorf("build %s: %w", m.name, err)
	}
	partial, env := m.target+".partial", buildEnv("")
	if m.source == "" {
		env = buildEnv("-mod=mod") // no go.sum is there
		dir, err := os.MkdirTemp("", "kubernetes-")
		if err != nil {
			return fmt.Errorf("build %s: %w", m.name, err)
		}
		defer os.RemoveAll(dir)
		if err := writeModule(ctx, dir, m.version); err != nil {
			return fmt.Errorf("build %s: %w", m.name, err)
		}
		m.source = dir
		env = append(env, "GOCACHE="+filepath.Join(dir, "cache")) // more than a gigabyte that no other build needs
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", m.tags, "-ldflags", m.ldflags(), "-o", partial, m.pkg)
	cmd.Dir = m.source
	cmd.Env = append(env, "CGO_ENABLED=0")
	if m.cgo {
		cmd.Env = append(env, "CGO_ENABLED=1")
	}
	stop := everyHalfMinute(func() {
		fmt.Fprintf(log, "still building %s, for %s\n", m.name, time.Since(began).Round(time.Second))
	})
	out, err := cmd.CombinedOutput()
	stop()
	if err != nil {
		return fmt.Errorf("build %s: %w\n%s", m.name, err, out)
	}
	if err := os.Rename(partial, m.target); err != nil {
		return fmt.Errorf("build %s: %w", m.name, err)
	}
	fmt.Fprintf(log, "built %s in %s\n", m.name, time.Since(began).Round(time.Second))
	return nil
}

// buildEnv returns the environment of a go command: the caller's flags and workspace are not for these modules.
func buildEnv(flags string) []string {
	return append(os.Environ(), "GOFLAGS="+flags, "GOWORK=off")
}

// everyHalfMinute calls report each half minute until stop, which waits for a call in progress.
func everyHalfMinute(report func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(30 * time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				report()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// ldflags returns the linker flags that strip the program and set its version. A Kubernetes program
// without one reports v0.0.0-master+$Format:%H$, which clients can't parse.
func (m missingProgram) ldflags() string {
	flags := "-s -w"
	if !m.stamp {
		return flags
	}
	numbers := strings.SplitN(strings.TrimPrefix(m.version, "v"), ".", 3)
	if len(numbers) < 3 {
		return flags
	}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(" -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s",
			pkg, m.version, pkg, numbers[0], pkg, numbers[1])
	}
	return flags
}

// waitLock takes the lock of a file; waiting is called once if another process holds it.
func waitLock(ctx context.Context, path string, waiting func()) (io.Closer, error) {
	var lock io.Closer
	told := false
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		f, err := tryLock(path)
		if errors.Is(err, ErrLocked) {
			if !told {
				told = true
				waiting()
			}
			return false, nil
		}
		lock = f
		return err == nil, err
	})
	return lock, err
}
