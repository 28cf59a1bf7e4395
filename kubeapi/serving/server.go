package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	golog "log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/internal/quota"
	"github.com/snapcache/snapcache/store"
)

// Limits against clients that send too much, or too slowly.
const (
	maxConnections    = 640      // of each listener, on a node
	maxHeaderBytes    = 64 << 10 // of the request line and the header; more is answered with 431
	maxAcceptBytes    = 4 << 10  // of the forms that a client accepts, which are parsed: more too
	maxBodyBytes      = 1 << 20
	readHeaderTimeout = 10 * time.Second // and for the TLS handshake
	readBodyTimeout   = 10 * time.Second
	writeTimeout      = time.Minute     // of an answer; lists and watches renew it
	idleTimeout       = 2 * time.Minute // of a connection without a request
)

// The bytes that a client can make a connection hold before it is known who sends them. By default net/http
// holds 1 MiB of an HTTP/2 frame, and 1 MiB of bodies that no handler reads yet.
const (
	maxFrameBytes        = 16 << 10
	maxUnreadBytes       = 64 << 10 // of the bodies of a connection
	maxCertificates      = 8        // of a client's chain
	maxCertificatesBytes = 16 << 10
)

// maxStreams limits the streams of an HTTP/2 connection, after which a client opens another one. A
// kube-apiserver has 1,000. For a frame that it reads or writes, net/http may look at all streams for
// one that has something to write: with 1,000 watches that is half of the cost of an event.
const maxStreams = 250

// Listen listens on a TCP address for HTTP/2 and HTTP/1.1 over TLS. The certificate is in the files,
// which may change, or, if their names are empty, c.Issued or a new one for the address. refused is called with
// the address of each client that has too many connections; nil for nothing.
func (c *Credentials) Listen(address string, of Files, refused func(peer string, err error)) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.RequestClientCert, // as in a kube-apiserver: it is verified with the request

		VerifyPeerCertificate: limitCertificates,
	}
	current, err := c.certificates(host, of)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current(), nil }
	c.served.Store(&current)
	listener, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, &store.Error{Err: err, Hint: "another program listens there: end it, or give another address"}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, &store.Error{Err: err, Hint: "this machine does not have it, or not yet: add it to an interface, or give another address"}
	case err != nil:
		return nil, &store.Error{Err: err, Hint: "give another address"}
	}
	// The limit is below TLS: net/http recognises HTTP/2 only on a *tls.Conn.
	return tls.NewListener(Limit(listener, Connections{Max: maxConnections * quota.Scale(), Refused: refused}), config), nil
}

// limitCertificates refuses a handshake with more certificates than a client needs: they are held, parsed, as
// long as the connection is.
func limitCertificates(raw [][]byte, _ [][]*x509.Certificate) error {
	size := 0
	for _, c := range raw {
		size += len(c)
	}
	if len(raw) > maxCertificates || size > maxCertificatesBytes {
		return fmt.Errorf("the client sent %d certificates of %d bytes: more than %d, or %d bytes", len(raw), size, maxCertificates, maxCertificatesBytes)
	}
	return nil
}

// certificates returns a function that returns the certificate for a connection.
func (c *Credentials) certificates(host string, of Files) (func() *tls.Certificate, error) {
	if of.Cert != "" {
		files, err := newKeyPair(of, host, c.log)
		return files.get, err
	}
	own, err := c.certificate(host)
	return func() *tls.Certificate {
		if c.Issued != nil {
			if issued := c.Issued(); issued != nil {
				return issued
			}
		}
		return &own
	}, err
}

// Served returns the certificate for new connections; nil if nothing listens yet. It is safe for concurrent use.
func (c *Credentials) Served() *x509.Certificate {
	current := c.served.Load()
	if current == nil {
		return nil
	}
	return (*current)().Leaf
}

// ListenUnix listens on a unix socket that only this user can connect to, see [files.ListenUnix].
func ListenUnix(path string) (net.Listener, error) {
	listener, err := files.ListenUnix(path)
	if err != nil {
		return nil, err
	}
	return Limit(listener, Connections{Max: maxConnections * quota.Scale()}), nil
}

// NewServer returns a server of h, which gets requests without their bodies, see [DiscardBody]. Its
// Shutdown ends the contexts of the requests in progress, so that watches end, and refuses requests that
// come on open connections.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return NewBodyServer(DiscardBody(h), log)
}

// NewBodyServer returns a server as NewServer does, but h gets the bodies of requests. A body
// that h has not read within readBodyTimeout is cut, unless h sets another deadline.
func NewBodyServer(h http.Handler, log *slog.Logger) *http.Server {
	requests, cancel := context.WithCancel(context.Background())
	s := NewPlainServer(untilEnd(requests, h), log)
	s.WriteTimeout = writeTimeout
	s.BaseContext = func(net.Listener) context.Context { return requests }
	s.RegisterOnShutdown(cancel)
	return s
}

// NewPlainServer returns a server of a handler that is not the Kubernetes API, without a limit of the time
// for an answer. Its Shutdown waits for requests in progress.
func NewPlainServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           limited(h),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrameBytes, WriteByteTimeout: writeTimeout,
			MaxReceiveBufferPerConnection: maxUnreadBytes, MaxReceiveBufferPerStream: maxUnreadBytes,
		},
		ConnContext: withOwner,
		ConnState:   noteState,
		ErrorLog:    golog.New(connectionLog{log}, "", 0),

		DisableGeneralOptionsHandler: true, // "OPTIONS *" has no path either
	}
}

// connectionLog is the output of net/http's log. Lines of the same failure of different clients have one
// message, so that no client fills the log, whose lines of one kind are limited.
type connectionLog struct{ *slog.Logger }

func (l connectionLog) Write(line []byte) (int, error) {
	failure, of, _ := strings.Cut(strings.TrimSpace(string(line)), " from ")
	if of == "" {
		l.Warn(failure)
	} else {
		l.Warn(failure, "client", of)
	}
	return len(line), nil
}

// limited returns a handler that serves requests by h if their target has a path, with a deadline for their
// body.
//
// A target of HTTP/1.1, or the :path of HTTP/2, may also be "*", the host and port of a CONNECT, or a URL
// without a slash after its scheme, such as x:https://host/api. Later handlers would read these in several
// ways. A URL of a host counts as its path, as HTTP demands of a server: nothing looks at the rest of it.
//
// Without the deadline a client could keep a request for ever with a body that does not end, which net/http
// waits for after the answer.
func limited(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/") {
			http.Error(w, "the target of the request is not a path", http.StatusBadRequest)
			return
		}
		if len(r.Header.Get("Accept")) > maxAcceptBytes {
			http.Error(w, "the Accept header is too long", http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		limitBodyTime(w, r)
		h.ServeHTTP(w, r)
	})
}

// untilEnd returns a handler that serves requests by h until ctx ends.
//
// A client of HTTP/2 may send requests after its watches have ended and before it reads that the connection
// is closing. A watch would end at once without an event, after which an informer lists again; a request
// that is refused with 429 it repeats.
func untilEnd(ctx context.Context, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the server is stopping", http.StatusTooManyRequests)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func limitBodyTime(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// The writers of net/http have deadlines, and this one ends with the body.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readBodyTimeout))
	}
}

// DiscardBody returns a handler that serves requests by h once their body is read, which no answer
// depends on.
func DiscardBody(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limitBodyTime(w, r)
		if r.ContentLength != 0 {
			if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBodyBytes)); err != nil {
				code := http.StatusRequestTimeout
				if errors.As(err, new(*http.MaxBytesError)) {
					code = http.StatusRequestEntityTooLarge
				}
				http.Error(w, http.StatusText(code), code)
				return
			}
			r = r.WithContext(r.Context()) // a copy
			r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
		}
		h.ServeHTTP(w, r)
	})
}
