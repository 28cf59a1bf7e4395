package forward

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// identify returns the route for a caller that has proven its identity by a client certificate.
func (h *Handler) identify(ctx context.Context, s *server, caller *access.Caller) (*route, error) {
	var faults []error
	for _, x := range h.identities {
		found, err := x.route(s, caller, h.opts.Clock.Now())
		if errors.Is(err, errToken) && caller.Issued {
			found, err = x.bearer.route(ctx, s, caller.User.Username, h.opts.Clock.Now())
		}
		if errors.Is(err, errUnreachable) {
			h.warn("the token for forwarded requests can't be judged", err)
			return nil, errUnreachable
		}
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("%s: %w", x.kubeconfig, err))
		case found != nil:
			return found, nil
		}
	}
	if err := errors.Join(faults...); err != nil {
		h.warn("a client certificate for forwarded requests can't be used", err)
	}
	return nil, status.Error(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf(
		"forbidden: User %q has proven its identity by a client certificate, with which a request can't be forwarded: "+
			"name a kubeconfig with a client certificate of the same user and groups in kubernetesAPI.forward.identities", caller.User.Username))
}

// errToken is the reason to look for another identity: a kubeconfig with a token is for the kubelet to which
// the agent has issued a certificate, and no one else.
var errToken = errors.New("it has no client certificate with its key, but a token or an exec plugin")

// identity is a client certificate for callers with the same user and groups. Its files are read again
// when they change. Each certificate has transports of its own, so that no request is sent on a
// connection of another one. It is safe for concurrent use.
type identity struct {
	kubeconfig string

	mu     sync.Mutex
	files  files.Seen // that it was read from; nil if it has to be read
	user   *authenticationv1.UserInfo
	cert   *tls.Certificate
	server *server // that to leads to
	to     *route

	bearer bearer // if there is no certificate
}

// route returns the route for a caller; nil if the certificate is another user's. The error is errToken if
// there is a token in its place.
func (x *identity) route(s *server, caller *access.Caller, now time.Time) (*route, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.files.Unchanged() {
		if err := x.read(); err != nil {
			return nil, err
		}
	}
	switch {
	case x.cert == nil:
		return nil, errToken
	case !same(x.user, &caller.User):
		return nil, nil
	case now.After(x.cert.Leaf.NotAfter):
		return nil, fmt.Errorf("the certificate ended on %s", x.cert.Leaf.NotAfter.Format(time.DateOnly))
	case x.to != nil && x.server == s:
		return x.to, nil
	}
	to, err := newRoute(s.config, s.sessions, x.cert)
	if err != nil {
		return nil, err
	}
	x.server, x.to = s, to
	return to, nil
}

// read reads the certificate. Of the kubeconfig only that is used: its server may be this cache.
func (x *identity) read() error {
	x.files, x.to, x.cert = nil, nil, nil
	seen := files.Seen{}
	read := func(name string, data []byte) ([]byte, error) {
		if len(data) > 0 || name == "" {
			return data, nil
		}
		return seen.Read(name)
	}
	if _, err := read(x.kubeconfig, nil); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", x.kubeconfig)
	if err != nil {
		return err
	}
	if x.bearer.set(config) {
		x.files = seen
		return nil
	}
	cert, err := read(config.CertFile, config.CertData)
	if err != nil {
		return err
	}
	key, err := read(config.KeyFile, config.KeyData)
	if err != nil {
		return err
	}
	if len(cert) == 0 || len(key) == 0 {
		return errors.New("it has no client certificate with its key")
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	user, err := access.CertificateUser(pair.Leaf)
	if err != nil {
		return err
	}
	x.files, x.user, x.cert = seen, user, &pair
	return nil
}

// same reports whether two users have the same rights: the same name, UID and groups.
func same(a, b *authenticationv1.UserInfo) bool {
	return a.Username == b.Username && a.UID == b.UID && maps.Equal(set(a.Groups), set(b.Groups))
}

func set(all []string) map[string]bool {
	out := make(map[string]bool, len(all))
	for _, x := range all {
		out[x] = true
	}
	return out
}

// route has the transports for one credential.
type route struct {
	requests http.RoundTripper
	upgrades http.RoundTripper // of HTTP/1.1, in which alone a connection can change its protocol
}

// newRoute returns transports to a server, with a client certificate unless that is nil.
func newRoute(config, sessions *rest.Config, certificate *tls.Certificate) (*route, error) {
	requests, err := newTransport(config, certificate)
	if err != nil {
		return nil, err
	}
	upgrades, err := newTransport(sessions, certificate, "http/1.1")
	return &route{requests, upgrades}, err
}

func newTransport(config *rest.Config, certificate *tls.Certificate, protocols ...string) (http.RoundTripper, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true // else it asks for gzip where the client has not
	config.NextProtos = protocols
	c, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	if certificate != nil {
		c.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: func() (*tls.Certificate, error) { return certificate, nil }}
	}
	return transport.New(c)
}
