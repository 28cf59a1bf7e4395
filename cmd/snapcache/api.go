package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
)

func apiHandler(db store.DB) (http.Handler, error) {
	stored, err := db.Collections()
	if err != nil {
		return nil, err
	}
	collections := make([]*kubeapi.Collection, len(stored))
	for i, info := range stored {
		description, state := about(db, info.ID) // a file does not change
		collections[i] = &kubeapi.Collection{
			Info:        func() store.Info { return info },
			Description: func() *store.Description { return &description },
			View:        func() (store.View, error) { return db.View(info.ID) },
			State:       func() store.State { return state },
			Freshness:   func() kubeapi.Freshness { return kubeapi.Freshness{Since: state.Proven()} },
			Staleness:   func() kubeapi.Staleness { return kubeapi.Staleness{Policy: kubeapi.Serve} }, // a file is asked for its own time
		}
	}
	server := kubeapi.New(kubeapi.Options{Collections: func() []*kubeapi.Collection { return collections }})
	return server.WithBodies(serving.DiscardBody(server)), nil
}

// about returns the description of a collection's resource and its state; zero if they can't be read. The
// API then still works, without short names.
func about(db store.DB, id string) (d store.Description, state store.State) {
	v, err := db.View(id)
	if err != nil {
		return d, state
	}
	defer v.Close()
	d, _ = v.Description() // zero after an error
	return d, v.State()
}

// api returns the way to the Kubernetes API of the cache: the agent's, or one that is served in this
// process, until done is called, from the file or the snapshot.
func (l *lookup) api(ctx context.Context) (cfg *rest.Config, done func(), err error) {
	_, _, err = l.open(ctx)
	if errors.Is(err, localapi.ErrOtherServer) {
		l.answered, err = l.socket, nil // snapcache serve listens there, which has nothing but this API
	}
	if err != nil {
		return nil, nil, err
	}
	cfg = &rest.Config{Host: "http://snapcache", UserAgent: "snapcache/" + programVersion()}
	if l.kept == nil {
		cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", l.answered)
		}
		return cfg, func() {}, nil
	}
	handler, err := apiHandler(l.kept)
	if err != nil {
		return nil, nil, err
	}
	listener := newPipeListener()
	server := serving.NewServer(handler, slog.New(slog.DiscardHandler))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // returns when the server is closed
	}()
	cfg.Dial = listener.dial
	return cfg, func() {
		_ = server.Close() // its connections are in memory
		<-served
	}, nil
}

// pipeListener listens for connections within the process, until it is closed.
type pipeListener struct {
	dialed chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newPipeListener() *pipeListener {
	l := &pipeListener{dialed: make(chan net.Conn)}
	l.closed, l.close = context.WithCancel(context.Background())
	return l
}

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.dialed <- server:
		return client, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

// Accept implements [net.Listener].
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialed:
		return c, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *pipeListener) Close() error {
	l.close()
	return nil
}

// Addr implements [net.Listener].
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
