package driver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/snapcache/snapcache/bench/result"
	"github.com/snapcache/snapcache/test/controlplane"
	"golang.org/x/sys/unix"
)

// compared are the modules whose versions are recorded.
var compared = []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "go.etcd.io/bbolt"}

// describe records the machine and the versions.
func describe(ctx context.Context, run *result.Run) error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("memory of the machine: %w", err)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	run.Machine = result.Machine{
		CPUs: runtime.NumCPU(), Model: cpuModel(), MemoryBytes: int64(info.Totalram) * int64(info.Unit), //nolint:unconvert // smaller elsewhere
		Kernel: unix.ByteSliceToString(name.Release[:]), Platform: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
	}
	root, err := controlplane.Root()
	if err != nil {
		return err
	}
	revision, err := output(ctx, root, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
	if err != nil {
		return err
	}
	run.Versions = map[string]string{"snapcache": strings.TrimSpace(revision)}
	list, err := output(ctx, filepath.Join(root, "bench"), "go", append([]string{"list", "-m"}, compared...)...)
	if err != nil {
		return err
	}
	for s := bufio.NewScanner(strings.NewReader(list)); s.Scan(); {
		if module, version, ok := strings.Cut(s.Text(), " "); ok {
			run.Versions[module] = version
		}
	}
	return nil
}

func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, stderr.Bytes())
	}
	return string(out), nil
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if field, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(field) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}
