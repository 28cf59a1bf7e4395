package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// defaultGrace is the default of Options.StopGrace.
const defaultGrace = 30 * time.Second

// process is one running child.
type process struct {
	name string
	log  string // path of the file its output is appended to
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of the process; valid after done is closed
}

// startProcess starts a program whose output is appended to the file log.
func startProcess(name, log, path string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, log: log, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = ownGroup()

	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		defer out.Close()
		// The death signal of ownGroup is tied to the thread, not to the process:
		// this thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := p.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = p.cmd.Wait()
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// running reports whether the process has not ended yet; a nil process has.
func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop sends SIGTERM to the process, and kills it if it has not ended when the grace or ctx is
// over. In that case the error is [ErrKilled].
func (p *process) stop(ctx context.Context, grace time.Duration) error {
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && p.running() {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		if err := p.kill(); err != nil {
			return err
		}
		return fmt.Errorf("stop %s: %w: %w", p.name, ErrKilled, ctx.Err())
	}
}

// kill ends the process without warning and waits until it is gone.
func (p *process) kill() error {
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && p.running() {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// await polls ready until it returns nil, and fails at once if the process ends.
func (p *process) await(ctx context.Context, timeout time.Duration, ready func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		if !p.running() {
			return false, fmt.Errorf("%w (%v); the end of %s:\n%s", ErrExited, p.err, p.log, tail(p.log, 2000))
		}
		last = ready(ctx)
		return last == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case last != nil && wait.Interrupted(err):
		return fmt.Errorf("%s is not ready: %w: %w", p.name, err, last)
	default:
		return fmt.Errorf("%s is not ready: %w", p.name, err)
	}
}

// tail returns the last bytes of a file, as far as it can be read.
func tail(path string, size int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		if _, err := f.Seek(-size, io.SeekEnd); err != nil {
			return nil
		}
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return nil
	}
	return bytes.TrimSpace(b)
}
