// Command floor answers every request with the same bytes, on the server of an agent's Kubernetes API:
// it has only the cost of net/http and, unless it listens on a socket, of HTTP/2 and of TLS. It writes
// a line to its output when it listens, with its address, and ends with its input.
package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/snapcache/snapcache/kubeapi/serving"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run() error {
	file := flag.String("body", "", "the `file` with the bytes of each answer")
	dir := flag.String("dir", "", "the `directory` for the certificate")
	socket := flag.String("socket", "", "the `path` of a unix socket to listen on, in place of an address")
	flag.Parse()
	body, err := os.ReadFile(*file)
	if err != nil {
		return err
	}
	listener, err := listen(*dir, *socket)
	if err != nil {
		return err
	}
	server := serving.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}), slog.Default())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := <-served; err != http.ErrServerClosed {
		return err
	}
	return nil
}

func listen(dir, socket string) (net.Listener, error) {
	if socket != "" {
		return serving.ListenUnix(socket)
	}
	credentials, err := serving.Ensure(dir, time.Now(), slog.Default())
	if err != nil {
		return nil, err
	}
	return credentials.Listen("127.0.0.1:0", serving.Files{}, nil)
}
