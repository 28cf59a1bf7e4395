package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// peakEnv makes the test program run its arguments as a command.
const peakEnv = "SNAPCACHE_TEST_PEAK"

// measured returns a command that runs the program and writes the peak of its memory, in KiB, to stdout.
// The kernel counts a parent's memory for a child that it has not copied: the tests' own hundreds of
// megabytes would be the program's. So a process of its own, a small one, starts the program.
func measured(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, append([]string{harness.Snapcache}, args...)...)
	cmd.Env = append(os.Environ(), peakEnv+"=1")
	return cmd
}

// servePeak is the other side of measured. It passes SIGINT on, and exits as the command did.
func servePeak() bool {
	if os.Getenv(peakEnv) == "" {
		return false
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		for s := range interrupts {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	_ = cmd.Wait() // the exit code has it
	fmt.Print(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	os.Exit(cmd.ProcessState.ExitCode())
	return true
}

// peakMB returns what a measured command wrote.
func peakMB(t *testing.T, stdout string) float64 {
	t.Helper()
	kib, err := strconv.ParseFloat(stdout, 64)
	require.NoError(t, err)
	return kib / 1024
}

// TestMeasured holds more memory than any limit while it measures a command that needs little.
func TestMeasured(t *testing.T) {
	held := make([]byte, 2*liarMB<<20)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	out, err := measured(t, "--version").Output()
	require.NoError(t, err)
	require.Less(t, peakMB(t, string(out)), float64(liarMB))
	require.EqualValues(t, 1, held[0])
}
