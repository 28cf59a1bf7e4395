package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// AssetsEnv is the environment variable that names a folder with an etcd and a kube-apiserver, as for
// sigs.k8s.io/controller-runtime's envtest.
const AssetsEnv = "KUBEBUILDER_ASSETS"

// installed is a server that may already be on the machine.
type installed struct {
	program
	version      *regexp.Regexp // finds the numbers in the output of --version
	major, minor int            // the oldest version that knows the flags of this package and serves its objects
}

var servers = []installed{
	{program: etcd, version: regexp.MustCompile(`etcd Version: (\d+)\.(\d+)\.`), major: 3, minor: 5},
	{program: apiserver, version: regexp.MustCompile(`Kubernetes v(\d+)\.(\d+)\.`), major: 1, minor: 31},
}

// Servers returns an etcd and a kube-apiserver that are installed, in the folder of [AssetsEnv] or on the
// PATH, and builds a missing one or one whose version does not fit. The other programs are built when they
// are needed.
func Servers(ctx context.Context, log io.Writer) (Binaries, error) {
	paths := map[string]string{}
	var missing []program
	for _, s := range servers {
		path, err := s.find(ctx)
		if err != nil {
			fmt.Fprintf(log, "%s: %v\n", s.name, err)
			missing = append(missing, s.program)
			continue
		}
		fmt.Fprintf(log, "%s: using %s\n", s.name, path)
		paths[s.name] = path
	}
	built, err := buildAll(ctx, log, missing)
	if err != nil {
		return Binaries{}, err
	}
	for name, path := range built {
		paths[name] = path
	}
	return Binaries{Etcd: paths[etcd.name], APIServer: paths[apiserver.name]}, nil
}

// find returns the path of the server if it is installed in a version that fits.
func (s installed) find(ctx context.Context) (string, error) {
	path := filepath.Join(os.Getenv(AssetsEnv), s.name)
	if os.Getenv(AssetsEnv) == "" {
		var err error
		if path, err = exec.LookPath(s.name); err != nil {
			return "", errors.New("not installed")
		}
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s does not run: %w", path, err)
	}
	m := s.version.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s has a version that is not recognized: %.60q", path, out)
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	if major != s.major || minor < s.minor {
		return "", fmt.Errorf("%s is version %d.%d, and %d.%d or newer is needed", path, major, minor, s.major, s.minor)
	}
	return path, nil
}
