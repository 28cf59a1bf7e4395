package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Names of the files in the folder pki.
const (
	caCertFile     = "ca.crt"
	caKeyFile      = "ca.key"
	serverCertFile = "apiserver.crt"
	serverKeyFile  = "apiserver.key"
	accountKeyFile = "service-account.key"

	clientCACertFile = "client-ca.crt"
	clientCAKeyFile  = "client-ca.key"
)

// certificateLifetime is generous: a saved folder may be started again much later.
const certificateLifetime = 10 * 365 * 24 * time.Hour

// writePKI makes an authority, the apiserver's certificate for localhost and
// the key that signs service account tokens, unless dir has them already.
func writePKI(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, accountKeyFile)); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	ca, caKey, err := newAuthority("controlplane-ca")
	if err != nil {
		return err
	}
	now := time.Now()
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("pki: apiserver: %w", err)
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano() + 1),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certificateLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, ca, serverKey.Public(), caKey)
	if err != nil {
		return fmt.Errorf("pki: apiserver: %w", err)
	}
	if err := writePEM(filepath.Join(dir, caCertFile), "CERTIFICATE", ca.Raw); err != nil {
		return err
	}
	if err := writeKey(filepath.Join(dir, caKeyFile), caKey); err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, serverCertFile), "CERTIFICATE", serverDER); err != nil {
		return err
	}
	if err := writeKey(filepath.Join(dir, serverKeyFile), serverKey); err != nil {
		return err
	}
	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("pki: service accounts: %w", err)
	}
	return writeKey(filepath.Join(dir, accountKeyFile), accountKey)
}

// Sign returns a certificate, in PEM, for the PEM of a certificate request, as a signer of the cluster's CA: it has the
// names of the request, and the extended key usage of a server.
func (cp *ControlPlane) Sign(request []byte, from, until time.Time) ([]byte, error) {
	authority, err := tls.LoadX509KeyPair(cp.path("pki", caCertFile), cp.path("pki", caKeyFile)) // with its Leaf
	if err != nil {
		return nil, fmt.Errorf("pki: the cluster's authority: %w", err)
	}
	block, _ := pem.Decode(request)
	if block == nil {
		return nil, errors.New("pki: the request is not in PEM")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("pki: request: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      r.Subject,
		NotBefore:    from,
		NotAfter:     until,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     r.DNSNames,
		IPAddresses:  r.IPAddresses,
	}, authority.Leaf, r.PublicKey, authority.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("pki: sign: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// newAuthority makes a certificate authority.
func newAuthority(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", name, err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(certificateLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", name, err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %s: %w", name, err)
	}
	return ca, key, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return nil
}
