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
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Client is a user with a client certificate of a control plane.
type Client struct {
	CertPEM, KeyPEM []byte

	user string
	cp   *ControlPlane
}

// IssueClient issues a client certificate, which is valid from an hour ago until after this time.
func (cp *ControlPlane) IssueClient(user string, groups []string, validity time.Duration) (*Client, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", user, err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: user, Organization: groups},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, cp.clientCA.Leaf, key.Public(), cp.clientCA.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", user, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", user, err)
	}
	return &Client{
		CertPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
		user:    user, cp: cp,
	}, nil
}

// RESTConfig returns a client configuration without a rate limit.
func (c *Client) RESTConfig() *rest.Config {
	config := c.cp.RESTConfig("")
	config.CertData, config.KeyData = c.CertPEM, c.KeyPEM
	return config
}

// Kubeconfig writes the kubeconfig file of the user, which needs no other file, and returns its path.
func (c *Client) Kubeconfig() (string, error) {
	return c.cp.writeKubeconfig(c.user, &clientcmdapi.AuthInfo{ClientCertificateData: c.CertPEM, ClientKeyData: c.KeyPEM})
}

// ClientCAFile returns the path of the authority's certificate that clients' certificates are of.
func (cp *ControlPlane) ClientCAFile() string { return cp.clientCAFile }

// loadClientCA returns the authority of client certificates with the file of its certificate, and makes it unless dir
// has it.
func loadClientCA(dir string) (_ *tls.Certificate, certFile string, _ error) {
	certFile, keyFile := filepath.Join(dir, clientCACertFile), filepath.Join(dir, clientCAKeyFile)
	if _, err := os.Stat(certFile); errors.Is(err, os.ErrNotExist) {
		ca, key, err := newAuthority("controlplane-client-ca")
		if err != nil {
			return nil, "", err
		}
		if err := writeKey(keyFile, key); err != nil {
			return nil, "", err
		}
		if err := writePEM(certFile, "CERTIFICATE", ca.Raw); err != nil {
			return nil, "", err
		}
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile) // with its Leaf
	if err != nil {
		return nil, "", fmt.Errorf("pki: client authority: %w", err)
	}
	return &pair, certFile, nil
}
