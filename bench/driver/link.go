package driver

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// link is a proxy to a server whose answers together are limited to a rate.
type link struct {
	listener net.Listener
	target   string
	rate     float64 // bytes a second
	wg       sync.WaitGroup
	open     context.Context // ends with the link
	end      context.CancelFunc

	mu   sync.Mutex
	free time.Time // when the link has sent everything so far
}

func newLink(target string, bitsPerSecond float64) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	k := &link{listener: l, target: target, rate: bitsPerSecond / 8}
	k.open, k.end = context.WithCancel(context.Background())
	k.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			k.wg.Go(func() { k.carry(client) })
		}
	})
	return k, nil
}

func (k *link) address() string { return k.listener.Addr().String() }

// close closes all connections.
func (k *link) close() error {
	err := k.listener.Close()
	k.end()
	k.wg.Wait()
	return err
}

func (k *link) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", k.target)
	if err != nil {
		return // the client sees its connection end
	}
	defer server.Close()
	stop := context.AfterFunc(k.open, func() {
		server.Close()
		client.Close()
	})
	defer stop()
	k.wg.Go(func() {
		_, _ = io.Copy(server, client) // errors concern the ends
		server.Close()
	})
	_, _ = io.Copy(limited{client, k}, server)
}

// limited is a client behind a link.
type limited struct {
	net.Conn
	link *link
}

// Write implements io.Writer.
func (l limited) Write(p []byte) (int, error) {
	k := l.link
	k.mu.Lock()
	now := time.Now()
	if k.free.Before(now) {
		k.free = now
	}
	k.free = k.free.Add(time.Duration(float64(len(p)) / k.rate * float64(time.Second)))
	wait := k.free.Sub(now)
	k.mu.Unlock()
	time.Sleep(wait)
	return l.Conn.Write(p)
}
