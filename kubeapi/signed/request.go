package signed

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/cert"

	"github.com/snapcache/snapcache/config"
)

// target is the content of a certificate.
type target struct {
	signer  string
	subject pkix.Name
	dns     []string
	ips     []net.IP
}

// newTarget returns the content that the options demand. For a kubelet the subject is the one that the
// signer kubernetes.io/kubelet-serving demands.
func newTarget(o Options) target {
	t := target{signer: o.Signer, subject: pkix.Name{CommonName: "snapcache"}}
	if o.NodeName != "" {
		t.subject.CommonName += "-" + o.NodeName
		t.dns = append(t.dns, o.NodeName)
	}
	if o.Signer == config.SignerKubeletServing {
		t.subject = pkix.Name{CommonName: "system:node:" + o.NodeName, Organization: []string{"system:nodes"}}
	}
	if ip := net.ParseIP(o.Host); ip != nil {
		t.ips = append(t.ips, ip)
	} else if o.Host != o.NodeName {
		t.dns = append(t.dns, o.Host)
	}
	return t
}

// String is one line. A certificate in the file that was for another one is replaced.
func (t target) String() string { return fmt.Sprintf("%s %s %v %v", t.signer, t.subject, t.dns, t.ips) }

// request returns the request of a key, in PEM.
func (t target) request(key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: t.subject, DNSNames: t.dns, IPAddresses: t.ips,
	}, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateRequestBlockType, Bytes: der}), nil
}

// requestName returns the name of the request of an agent, always the same.
func requestName(node string, owner crypto.PublicKey) (string, error) {
	const maxNode = 200 // bytes, of 253 of a name
	der, err := x509.MarshalPKIXPublicKey(owner)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	name := strings.TrimRight(node[:min(len(node), maxNode)], ".-")
	return "snapcache-" + cmp.Or(name, "agent") + "-" + hex.EncodeToString(sum[:5]), nil
}

// isFor reports whether a request is to a signer and of a key.
func isFor(r *certificatesv1.CertificateSigningRequest, signer string, key crypto.PublicKey) bool {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil || r.Spec.SignerName != signer {
		return false
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	return err == nil && equal(key, request.PublicKey)
}

func equal(key, other crypto.PublicKey) bool {
	k, ok := key.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(other)
}

// hold returns an issued certificate, in PEM, with the key of the open request. It returns an error if clients
// would refuse it.
func (c *Certificate) hold(chain []byte) (*held, error) {
	certs, err := cert.ParseCertsPEM(chain)
	if err != nil {
		return nil, err
	}
	leaf := certs[0]
	switch {
	case !equal(c.key.Public(), leaf.PublicKey):
		return nil, errors.New("it is for another key")
	case !leaf.NotBefore.Before(leaf.NotAfter):
		return nil, errors.New("it is never valid")
	}
	if err := leaf.VerifyHostname(c.opts.Host); err != nil {
		return nil, err
	}
	pair := &tls.Certificate{PrivateKey: c.key, Leaf: leaf}
	for _, one := range certs {
		pair.Certificate = append(pair.Certificate, one.Raw)
	}
	return &held{pair, c.target.String(), renewal(leaf)}, nil
}

// renewal returns a random time between 70 % and 90 % of a certificate's lifetime, as client-go's: the
// agents of a fleet that begin at once do not renew at once.
func renewal(leaf *x509.Certificate) time.Time {
	lifetime := leaf.NotAfter.Sub(leaf.NotBefore)
	part := 0.7 + 0.2*mathrand.Float64()
	return leaf.NotBefore.Add(time.Duration(float64(lifetime) * part))
}

// verify returns why a client with these authorities does not trust a certificate. The time is one at which
// it is valid: clocks have no part in the question.
func verify(pair *tls.Certificate, ca []byte) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("the CA of the agent's kubeconfig has no certificate")
	}
	for _, raw := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(raw); err == nil {
			between.AddCert(c)
		}
	}
	leaf := pair.Leaf
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		CurrentTime: leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2),
	})
	return err
}
