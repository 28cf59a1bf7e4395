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
	// patience limits every wait: longer than the slowest peer with the most objects needs.
	patience = 15 * time.Minute
	// logTail is how much of a peer's log an error shows.
	logTail = 2 << 10
)

// process is a child whose standard error goes to a file.
type process struct {
	name    string
	log     string
	cmd     *exec.Cmd
	started time.Time
	done    chan struct{} // closed when it has ended
}

// start starts a command in directory dir.
func start(cmd *exec.Cmd, name, dir string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, "log"), cmd: cmd, done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	cmd.Stderr = log
	cmd.Dir = dir
	// The environment must not influence the result.
	cmd.Env = append(cmd.Env, "HOME="+dir, "PATH="+os.Getenv("PATH"), "TMPDIR="+os.TempDir())
	p.started = time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // ProcessState has the result
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end waits until the process ends as requested, and kills it if it does not.
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

// failed adds the end of the log to an error.
func (p *process) failed(err error) error {
	b, _ := os.ReadFile(p.log) // without a log the error is returned alone
	return fmt.Errorf("%s: %w; the end of its log:\n%s", p.name, err, b[max(0, len(b)-logTail):])
}

// poll calls ok until it returns true, the process has ended or patience has. Its precision is a
// millisecond, or a hundredth of the time so far, because each call costs the process work.
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
