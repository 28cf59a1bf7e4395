package forward

import (
	"crypto/tls"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// route has the transports for one credential.
type route struct {
	requests http.RoundTripper
	upgrades http.RoundTripper // of HTTP/1.1, in which alone a connection can change its protocol
}

// newRoute returns transports to a server, with a client certificate unless that is nil.
func newRoute(config *rest.Config, certificate *tls.Certificate) (*route, error) {
	requests, err := newTransport(config, certificate)
	if err != nil {
		return nil, err
	}
	upgrades, err := newTransport(config, certificate, "http/1.1")
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
