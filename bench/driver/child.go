package driver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"github.com/snapcache/snapcache/bench/peer"
)

// launch configures the start of a peer.
type launch struct {
	name       string
	dir        string // its own directory, for durable data
	kubeconfig string
	resources  []peer.Resource
	read       peer.Mark
	marks      []peer.Mark
	handler    bool
	durable    bool     // the handler also records when changes are durable, which costs CPU
	nodes      int      // in a fleet
	tokens     string   // file with a token for each node; empty if all have the kubeconfig's
	hubs       []string // kubeconfigs of the hubs that the nodes follow; empty for the apiserver
	hub        bool     // the agent serves nodes, and caches the resources for their access
	binary     string   // of the agent; empty for the one of this revision
	api        string   // address of the agent's Kubernetes API; empty for none
}

// subject is a running peer: a child or an agent.
type subject interface {
	pid() int
	// await waits for an event and returns how long after the start it came.
	await(ctx context.Context, event string) (time.Duration, error)
	contents(ctx context.Context) (map[string]peer.Content, error)
	// reset clears the delays so far.
	reset(ctx context.Context) error
	// delays returns the seconds from each change since the last call to the handler and to the
	// commit.
	delays(ctx context.Context) (handled, durable []float64, err error)
	// stop asks the peer to end, and waits.
	stop() error
	kill() error
	// failed adds the end of the log to an error.
	failed(err error) error
}

// child is a process of cmd/peer.
type child struct {
	*process
	in     io.WriteCloser
	events chan peer.Event // closed at the end of the output
	lists  int             // complete lists, when contents was called

	collector peer.Collector // at the last event
}

func startChild(binary string, l launch) (*child, error) {
	args := []string{l.name, "-kubeconfig", l.kubeconfig, "-state", l.dir, "-read", l.read.String()}
	for _, r := range l.resources {
		args = append(args, "-resource", r.Name)
	}
	for _, m := range l.marks {
		args = append(args, "-caught-up", m.String())
	}
	if l.handler {
		args = append(args, "-handler")
	}
	if l.durable {
		args = append(args, "-durable")
	}
	if l.nodes > 0 {
		args = append(args, "-nodes", strconv.Itoa(l.nodes))
	}
	if l.tokens != "" {
		args = append(args, "-tokens", l.tokens)
	}
	for _, h := range l.hubs {
		args = append(args, "-hub", h)
	}
	cmd := exec.Command(binary, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", l.name, err)
	}
	r, w := io.Pipe() // unlike StdoutPipe, Wait does not close it before all was read
	cmd.Stdout = w
	p, err := start(cmd, l.name, l.dir)
	if err != nil {
		return nil, err
	}
	c := &child{process: p, in: in, events: make(chan peer.Event, 8)}
	go func() {
		<-p.done
		w.Close()
	}()
	go func() {
		defer close(c.events)
		for d := json.NewDecoder(bufio.NewReader(r)); ; {
			var e peer.Event
			if err := d.Decode(&e); err != nil {
				_, _ = io.Copy(io.Discard, r) // discard the rest
				return
			}
			c.events <- e
		}
	}()
	return c, nil
}

func (c *child) await(ctx context.Context, event string) (time.Duration, error) {
	e, err := c.next(ctx, event)
	return e.At.Sub(c.started), err
}

func (c *child) next(ctx context.Context, event string) (peer.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case e, ok := <-c.events:
		if !ok {
			<-c.done
			return e, c.failed(fmt.Errorf("ended before %q: %s", event, c.cmd.ProcessState))
		}
		if e.Event != event {
			return e, c.failed(fmt.Errorf("sent event %q instead of %q", e.Event, event))
		}
		c.collector = e.Collector
		return e, nil
	case <-ctx.Done():
		return peer.Event{}, c.failed(fmt.Errorf("no %q: %w", event, ctx.Err()))
	}
}

func (c *child) ask(ctx context.Context, command string) (peer.Event, error) {
	if _, err := io.WriteString(c.in, command+"\n"); err != nil {
		return peer.Event{}, c.failed(err)
	}
	return c.next(ctx, command)
}

func (c *child) contents(ctx context.Context) (map[string]peer.Content, error) {
	e, err := c.ask(ctx, peer.Contents)
	c.lists = e.Lists
	return e.Contents, err
}

func (c *child) delays(ctx context.Context) (handled, durable []float64, err error) {
	e, err := c.ask(ctx, peer.Delays)
	return e.Handled, e.Durable, err
}

func (c *child) reset(ctx context.Context) error {
	_, err := c.ask(ctx, peer.Reset)
	return err
}

func (c *child) stop() error { return errors.Join(c.in.Close(), c.end()) }
