package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience is the timeout of a wait: far longer than it takes on an idle machine, and than an agent's backoff.
const Patience = 4 * time.Minute

// logTail is how much of a log a failed test prints, in bytes.
const logTail = 10_000

// Process is a running program.
type Process struct {
	Cmd  *exec.Cmd
	Log  string        // path of the file that its output is appended to
	Done chan struct{} // closed when the process has exited
}

// Environment is the environment of a program that must not depend on the tests' own.
func Environment(home string) []string {
	return []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
}

// Start starts a program, which ends with the test at the latest. A failed test prints the end of its log.
func Start(t *testing.T, cmd *exec.Cmd) *Process {
	t.Helper()
	log := filepath.Join(t.TempDir(), filepath.Base(cmd.Path)+".log")
	ShowLog(t, log)
	p, err := StartProcess(cmd, log)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

// ShowLog prints the end of a log when the test has failed.
func ShowLog(t *testing.T, log string) {
	t.Cleanup(func() {
		if t.Failed() {
			b, err := os.ReadFile(log)
			t.Logf("the end of %s (%v):\n%s", log, err, b[max(0, len(b)-logTail):])
		}
	})
}

// StartProcess starts a program that its caller ends.
func StartProcess(cmd *exec.Cmd, log string) (*Process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{Cmd: cmd, Log: log, Done: make(chan struct{})}
	go func() {
		defer close(p.Done)
		_ = cmd.Wait() // ProcessState has the result
	}()
	return p, nil
}

// Running reports whether the process has not exited.
func (p *Process) Running() bool {
	select {
	case <-p.Done:
		return false
	default:
		return true
	}
}

// Kill ends the process without warning, unless it has exited.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Done
}

// Stop ends the process like systemd. It is an error if it does not exit with 0.
func (p *Process) Stop() error {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may have exited
	code, err := p.Wait()
	if err != nil {
		p.Kill()
		return err
	}
	if code != 0 {
		return fmt.Errorf("%s ended with %d:\n%s", filepath.Base(p.Cmd.Path), code, p.Output())
	}
	return nil
}

// Wait returns the exit code of a process that is about to exit.
func (p *Process) Wait() (code int, err error) {
	select {
	case <-p.Done:
		return p.Cmd.ProcessState.ExitCode(), nil
	case <-time.After(Patience):
		return 0, fmt.Errorf("%s still runs after %s", filepath.Base(p.Cmd.Path), Patience)
	}
}

// Output returns the program's output, with the output of earlier processes that had the same log.
func (p *Process) Output() string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
