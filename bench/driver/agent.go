package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/snapcache/snapcache/bench/peer"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
)

// errEnough stops the reading of an answer.
var errEnough = errors.New("enough was read")

// agent is the snapcache program, read through its socket.
type agent struct {
	*process
	launch
	client *localapi.Client

	unfollow func() // stops reading changes and waits; nil if they are not read

	mu      sync.Mutex
	handled []float64
	lost    error // why reading changes failed
}

func startAgent(binary string, l launch) (*agent, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: snapcache.dev/v1alpha1\nkind: AgentConfiguration\n")
	// The jitter that spreads a fleet's requests is random, and would dominate the figures.
	fmt.Fprintf(&b, "resumeJitter: 0s\n")
	fmt.Fprintf(&b, "store:\n  path: %s\n", filepath.Join(l.dir, "cache.db"))
	socket := filepath.Join(l.dir, "s")
	fmt.Fprintf(&b, "localAPI:\n  socket: %s\nmetrics:\n  address: 127.0.0.1:0\nresources:\n", socket)
	for _, r := range l.resources {
		fmt.Fprintf(&b, "- resource: %s\n", r.Name)
	}
	if l.hub {
		for _, name := range hubResources {
			fmt.Fprintf(&b, "- resource: %s\n", name)
		}
	}
	if l.api != "" {
		fmt.Fprintf(&b, "kubernetesAPI:\n  address: %s\n  socket: %s\n  access:\n    enabled: %t\n", l.api, apiSocket(l.dir), l.hub)
	}
	config := filepath.Join(l.dir, "agent.yaml")
	if err := os.WriteFile(config, []byte(b.String()), 0o600); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	cmd := exec.Command(binary, "run", "--config", config, "--kubeconfig", l.kubeconfig)
	if l.hub {
		cmd.Env = []string{fmt.Sprintf("GOMEMLIMIT=%d", HubMemory)}
	}
	p, err := start(cmd, l.name, l.dir)
	if err != nil {
		return nil, err
	}
	return &agent{process: p, launch: l, client: localapi.NewClient(socket)}, nil
}

// apiSocket returns the socket of the Kubernetes API of the agent in a directory.
func apiSocket(dir string) string { return filepath.Join(dir, "k") }

// collection returns the agent's name of a resource.
func collection(name string) (string, error) {
	r, err := peer.ResourceOf(name)
	return r.GVR.GroupResource().String(), err
}

func (a *agent) await(ctx context.Context, event string) (time.Duration, error) {
	ok := a.caughtUp
	if event == peer.Read {
		ok = a.hasRead
	}
	err := a.poll(ctx, func() bool { return ok(ctx) })
	at := time.Since(a.started)
	if err == nil && event == peer.CaughtUp && a.handler {
		err = a.follow()
	}
	return at, err
}

// hasRead reads the objects of the mark's namespace up to the mark.
func (a *agent) hasRead(ctx context.Context) bool {
	id, err := collection(a.read.Resource)
	if err != nil {
		return false
	}
	namespace, _, _ := strings.Cut(a.read.Key, "/")
	found := false
	_ = a.client.Objects(ctx, []string{id}, localapi.ObjectQuery{Namespace: namespace}, func(json []byte) error {
		o, err := object.Parse(bytes.Clone(json))
		if err != nil {
			return err
		}
		if o.Key() != a.read.Key {
			return nil
		}
		found = o.GetResourceVersion() == a.read.RV
		return errEnough
	}) // the caller polls
	return found
}

// caughtUp reports whether the watches are open and have delivered the marks.
func (a *agent) caughtUp(ctx context.Context) bool {
	status, err := a.client.Status(ctx)
	if err != nil {
		return false
	}
	at := map[string]localapi.Collection{}
	for _, c := range status.Collections {
		if !c.CaughtUp {
			return false
		}
		at[c.ID] = c
	}
	for _, m := range a.marks {
		id, err := collection(m.Resource)
		if err != nil {
			return false
		}
		c := at[id]
		if behind, ok := object.CompareRV(c.ResourceVersion, m.RV); !ok || behind < 0 {
			return false
		}
	}
	return true
}

func (a *agent) contents(ctx context.Context) (map[string]peer.Content, error) {
	all := map[string]peer.Content{}
	for _, r := range a.resources {
		versions := map[string]string{}
		err := a.client.Objects(ctx, []string{r.GVR.GroupResource().String()}, localapi.ObjectQuery{}, func(json []byte) error {
			o, err := object.Parse(bytes.Clone(json))
			if err != nil {
				return err
			}
			versions[o.Key()] = o.GetResourceVersion()
			return nil
		})
		if err != nil {
			return nil, a.failed(err)
		}
		all[r.Name] = peer.ContentOf(versions)
	}
	return all, nil
}

// follow reads the changes of the first resource from now on, as a consumer of the agent does
// instead of a handler.
func (a *agent) follow() error {
	id, err := collection(a.marks[0].Resource)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	a.unfollow = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		q := localapi.ChangeQuery{Since: a.marks[0].RV, Objects: true, Follow: true}
		err := a.client.Changes(ctx, id, q, func(c localapi.Change) error {
			now := time.Now()
			if c.Object == nil {
				return nil
			}
			m := c.Object.GetObjectMeta()
			if ns, err := strconv.ParseInt(m.GetAnnotations()[peer.Stamp], 10, 64); err == nil {
				a.mu.Lock()
				a.handled = append(a.handled, now.Sub(time.Unix(0, ns)).Seconds())
				a.mu.Unlock()
			}
			return nil
		})
		a.mu.Lock()
		defer a.mu.Unlock()
		if ctx.Err() == nil {
			a.lost = a.failed(fmt.Errorf("follow changes: %w", err))
		}
	}()
	return nil
}

// delays returns no commit delays, because the agent does not report them.
func (a *agent) delays(context.Context) (handled, durable []float64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	handled, a.handled = a.handled, nil
	return handled, nil, a.lost
}

func (a *agent) reset(ctx context.Context) error {
	_, _, err := a.delays(ctx)
	return err
}

func (a *agent) stop() error {
	if a.unfollow != nil {
		a.unfollow()
	}
	return errors.Join(a.signal(), a.end())
}

func (a *agent) kill() error {
	if a.unfollow != nil {
		a.unfollow()
	}
	return a.process.kill()
}
