package access

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// nodes is the group of all kubelets.
const nodes = "system:nodes"

// Kubelet accepts the client certificates that the agent has issued to the kubelet of its node, from
// clients of this machine. Its authority is trusted for this one user: it may sign certificates of
// others, and none of them is accepted. It is immutable.
type Kubelet struct {
	name      string
	authority *x509.Certificate
	roots     *x509.CertPool
}

// NewKubelet returns the Kubelet of a node.
func NewKubelet(node string, authority *x509.Certificate) *Kubelet {
	k := &Kubelet{name: nodeUser + node, authority: authority, roots: x509.NewCertPool()}
	k.roots.AddCert(authority)
	return k
}

// Subject returns the subject of the certificates.
func (k *Kubelet) Subject() pkix.Name {
	return pkix.Name{CommonName: k.name, Organization: []string{nodes}}
}

// errOtherUser is the reason to refuse a certificate of the agent's authority for any other user.
var errOtherUser = errors.New("the agent's authority is good for the kubelet of this node only")

// errElsewhere is the reason to refuse the kubelet's certificate from elsewhere: the kubelet of this node
// is on this machine.
var errElsewhere = errors.New("the certificate that the agent has issued is good on this machine only")

// issued reports whether a certificate names the authority as its issuer. That is no proof.
func (k *Kubelet) issued(leaf *x509.Certificate) bool {
	return k != nil && bytes.Equal(leaf.RawIssuer, k.authority.RawSubject)
}

// User returns the kubelet's user if it is the certificate's, which is verified.
func (k *Kubelet) User(leaf *x509.Certificate, now time.Time) (*authenticationv1.UserInfo, error) {
	user, err := verified(k.roots, []*x509.Certificate{leaf}, now)
	switch {
	case err != nil:
		return nil, err
	case user.Username != k.name, user.UID != "", !slices.Equal(user.Groups, []string{nodes, authenticated}):
		return nil, errOtherUser
	}
	return user, nil
}
