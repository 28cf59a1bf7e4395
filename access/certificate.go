package access

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/util/cert"
)

// userID is the attribute of a certificate's subject that has the user's UID, as Kubernetes defines it.
var userID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// authorities verifies client certificates. It is safe for concurrent use; the zero value knows no
// authority, and accepts no certificate.
type authorities struct {
	pool atomic.Pointer[x509.CertPool]
}

// set replaces the authorities by the content of a PEM file.
func (a *authorities) set(pem []byte) error {
	if len(pem) == 0 {
		a.pool.Store(nil)
		return nil
	}
	pool, err := cert.NewPoolFromBytes(pem)
	if err != nil {
		return fmt.Errorf("client CA: %w", err)
	}
	a.pool.Store(pool)
	return nil
}

var errNoAuthority = errors.New("no client CA is known")

// user returns the user of a chain that begins with a client's certificate, see "X.509 client
// certificates" in the Kubernetes documentation.
func (a *authorities) user(chain []*x509.Certificate, now time.Time) (*authenticationv1.UserInfo, error) {
	pool := a.pool.Load()
	if pool == nil {
		return nil, errNoAuthority
	}
	return verified(pool, chain, now)
}

// verified returns the user of a chain that ends at one of the roots.
func verified(roots *x509.CertPool, chain []*x509.Certificate, now time.Time) (*authenticationv1.UserInfo, error) {
	opts := x509.VerifyOptions{
		Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(opts); err != nil {
		return nil, err
	}
	return CertificateUser(chain[0])
}

// CertificateUser returns the user that a client certificate's subject names. It does not verify the
// certificate.
func CertificateUser(leaf *x509.Certificate) (*authenticationv1.UserInfo, error) {
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("the certificate's subject has no common name")
	}
	sum := sha256.Sum256(leaf.Raw)
	user := &authenticationv1.UserInfo{
		Username: leaf.Subject.CommonName,
		Groups:   append(slices.Clone(leaf.Subject.Organization), authenticated),
		Extra:    map[string]authenticationv1.ExtraValue{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}
	for _, x := range leaf.Subject.Names {
		if x.Type.Equal(userID) {
			uid, ok := x.Value.(string)
			if !ok || uid == "" || user.UID != "" {
				return nil, errors.New("the certificate's subject has not one UID that is text")
			}
			user.UID = uid
		}
	}
	return user, nil
}
