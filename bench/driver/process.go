package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// patience is how long anything may take: more than the slowest peer with the most
	// objects.
	patience = 15 * time.Minute
	// logTail is how much of a peer's log an error shows.
	logTail = 2 << 10
)

// process is a child whose standard error is in a file.
type process struct {
	name    string
	log     string
	cmd     *exec.Cmd
	started time.Time
	done    chan struct{} // closed when it has ended
}

// start starts a command in the folder dir, whatever else is set in cmd.
func start(cmd *exec.Cmd, name, dir string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, "log"), cmd: cmd, done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	cmd.Stderr = log
	cmd.Dir = dir
	// Nothing of the environment shall matter.
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	p.started = time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in ProcessState
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end waits until the process has ended by itself, as it was asked to, and kills it
// where it does not.
func (p *process) end() error {
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		return errors.Join(p.failed(errors.New("did not end")), p.kill())
	}
	if !p.cmd.ProcessState.Success() {
		return p.failed(errors.New(p.cmd.ProcessState.String()))
	}
	return nil
}

func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (p *process) signal() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return p.failed(err)
	}
	return nil
}

// failed is an error with the end of the log.
func (p *process) failed(err error) error {
	b, _ := os.ReadFile(p.log) // nothing is as good as an error here
	return fmt.Errorf("%s: %w; the end of its log:\n%s", p.name, err, b[max(0, len(b)-logTail):])
}

// poll asks until the answer is yes, the process has ended or patience has. What it tells is
// good to a millisecond, or to a hundredth of what it took: to be asked is work for the process.
func (p *process) poll(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !ok() {
		select {
		case <-p.done:
			return p.failed(errors.New(p.cmd.ProcessState.String()))
		case <-ctx.Done():
			return p.failed(ctx.Err())
		case <-time.After(max(time.Millisecond, time.Since(p.started)/100)):
		}
	}
	return nil
}
