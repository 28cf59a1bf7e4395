package serving

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/cert"
)

const (
	lifetime = 10 * 365 * 24 * time.Hour // of the authority
	overlap  = 365 * 24 * time.Hour      // a certificate that ends within it is replaced
)

var (
	// validFrom is the begin of all certificates: a machine without a battery for its clock starts
	// in 1970.
	validFrom = time.Unix(0, 0)

	// written is when this code was written. An earlier time comes from a wrong clock.
	written = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
)

// sane returns now, or a later time if now can't be right.
func sane(now time.Time) time.Time {
	if now.Before(written) {
		return written
	}
	return now
}

// newCA returns a certificate of the authority for a key, in PEM.
func newCA(key crypto.Signer, now time.Time) ([]byte, error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "snapcache kubernetes-api"},
		NotBefore: validFrom, NotAfter: sane(now).Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IsCA:     true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return cert.EncodeCertificates(&x509.Certificate{Raw: der})
}

// parseCA returns the certificate of the authority. It returns an error if the certificate is not for
// the key, or ends soon.
func parseCA(raw []byte, key crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	certs, err := cert.ParseCertsPEM(raw)
	if err != nil {
		return nil, err
	}
	ca := certs[0]
	public, ok := key.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ok || !public.Equal(ca.PublicKey):
		return nil, errors.New("it is for another key")
	case !ca.IsCA:
		return nil, errors.New("it is not that of an authority")
	case ca.NotAfter.Sub(sane(now)) < overlap:
		return nil, fmt.Errorf("it ends on %s", ca.NotAfter.Format(time.DateOnly))
	}
	return ca, nil
}

// certificate returns a new serving certificate, for host, localhost and the name of this machine. It
// is valid for as long as the authority's.
func (c *Credentials) certificate(host string) (tls.Certificate, error) {
	names := []string{"localhost"}
	// A name that is no DNS name, which the kernel allows, can't be in a certificate.
	name, _ := os.Hostname()
	if name = strings.ToLower(name); len(validation.IsDNS1123Subdomain(name)) == 0 && name != "localhost" {
		names = append(names, name)
	}
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if ip := net.ParseIP(host); ip != nil && !slices.ContainsFunc(addresses, ip.Equal) {
		addresses = append(addresses, ip)
	}
	return issue(c.ca, c.key, &x509.Certificate{NotBefore: validFrom, DNSNames: names, IPAddresses: addresses})
}

// issueBy returns a new serving certificate of an authority that is not the agent's own, for host alone: an
// authority may be limited to some addresses. It is valid for as long as the authority's.
func issueBy(authority *tls.Certificate, host string) (*tls.Certificate, error) {
	ca := authority.Leaf
	key, ok := authority.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T can't sign", authority.PrivateKey)
	}
	if !ca.IsCA || ca.KeyUsage != 0 && ca.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, errors.New("it is not the certificate of an authority: give certFile and keyFile instead")
	}
	template := &x509.Certificate{NotBefore: ca.NotBefore}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	pair, err := issue(ca, key, template)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: ca.NotBefore}); err != nil {
		return nil, fmt.Errorf("the authority can't issue a certificate for %s: %w", host, err)
	}
	pair.Certificate = append(pair.Certificate, authority.Certificate...)
	return &pair, nil
}

// issue returns a certificate of an authority with a new key. The template has its names and its begin.
func issue(ca *x509.Certificate, by crypto.Signer, template *x509.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template.Subject, template.NotAfter = pkix.Name{CommonName: "snapcache"}, ca.NotAfter
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), by)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
