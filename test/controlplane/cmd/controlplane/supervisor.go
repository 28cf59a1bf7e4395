package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/snapcache/snapcache/test/controlplane"
)

// Names of the files in the control plane's folder.
const (
	stateFile  = "state.json"
	socketFile = "control.sock"
)

// state describes a running control plane to other processes.
type state struct {
	PID         int               `json:"pid"`
	URL         string            `json:"url"`
	EtcdURL     string            `json:"etcdURL"`
	Kubectl     string            `json:"kubectl"`
	Kubeconfigs map[string]string `json:"kubeconfigs"` // by user
}

func readState(dir string) (state, error) {
	var st state
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return st, fmt.Errorf("no control plane runs in %s: start one with: controlplane start --dir %s", dir, dir)
	}
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	if err != nil {
		return st, fmt.Errorf("state of the control plane: %w", err)
	}
	return st, nil
}

// supervisor owns a running control plane and serves the requests of the other
// commands, over HTTP on a unix socket: POST /<verb>?<parameters>.
type supervisor struct {
	cp      *controlplane.ControlPlane
	state   state
	stop    context.CancelFunc
	stopped chan struct{} // closed when the control plane has ended
}

// newSupervisor writes the state of a control plane that has just started.
func newSupervisor(cp *controlplane.ControlPlane) (*supervisor, error) {
	s := &supervisor{cp: cp, stopped: make(chan struct{}), state: state{
		PID: os.Getpid(), URL: cp.URL(), EtcdURL: cp.EtcdURL(), Kubectl: cp.KubectlPath(), Kubeconfigs: map[string]string{},
	}}
	for _, user := range []string{controlplane.Admin, controlplane.Reader, controlplane.Stranger} {
		path, err := cp.Kubeconfig(user)
		if err != nil {
			return nil, err
		}
		s.state.Kubeconfigs[user] = path
	}
	b, err := json.MarshalIndent(s.state, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if err := os.WriteFile(filepath.Join(cp.Dir(), stateFile), append(b, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return s, nil
}

// run serves the socket until ctx ends or a client asks to stop, and then stops
// the control plane.
func (s *supervisor) run(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	socket := filepath.Join(s.cp.Dir(), socketFile)
	// The folder is locked by this process: a socket there is left over.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return withStop(s.cp, fmt.Errorf("control socket: %w", err))
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return withStop(s.cp, fmt.Errorf("control socket: %w (is the path longer than 100 letters? choose another --dir)", err))
	}
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	var failed error
	select {
	case <-ctx.Done():
	case failed = <-served:
	}
	failed = withStop(s.cp, failed)
	close(s.stopped)
	os.Remove(filepath.Join(s.cp.Dir(), stateFile))
	// Who asked to stop gets the answer now.
	bound, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(failed, server.Shutdown(bound))
}

// withStop stops the control plane and returns all that went wrong.
func withStop(cp *controlplane.ControlPlane, err error) error { return errors.Join(err, cp.Stop()) }

func (s *supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	for name, do := range s.verbs() {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) {
			if err := do(r.Context(), r.URL.Query()); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	return mux
}

// verbs are the supervisor's actions by their names.
func (s *supervisor) verbs() map[string]func(context.Context, url.Values) error {
	plain := func(do func(context.Context) error) func(context.Context, url.Values) error {
		return func(ctx context.Context, _ url.Values) error { return do(ctx) }
	}
	return map[string]func(context.Context, url.Values) error{
		"start-apiserver":   plain(s.cp.StartAPIServer),
		"stop-apiserver":    plain(s.cp.StopAPIServer),
		"kill-apiserver":    plain(s.cp.KillAPIServer),
		"restart-apiserver": plain(s.cp.RestartAPIServer),
		"start-etcd":        plain(s.cp.StartEtcd),
		"stop-etcd":         plain(s.cp.StopEtcd),
		"kill-etcd":         plain(s.cp.KillEtcd),
		"restart-etcd":      plain(s.cp.RestartEtcd),
		"compact":           plain(s.cp.CompactEtcd),
		"save":              func(ctx context.Context, v url.Values) error { return s.cp.SaveEtcd(ctx, v.Get("to")) },
		"restore":           func(ctx context.Context, v url.Values) error { return s.cp.RestoreEtcd(ctx, v.Get("from")) },
		"seed":              func(ctx context.Context, v url.Values) error { return seed(ctx, s.cp, v) },
		"stop": func(context.Context, url.Values) error {
			s.stop()
			<-s.stopped
			return nil
		},
	}
}
