package serving

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/files"
)

// The files of the kubelet of this node, beside the credentials.
const (
	kubeletFile           = "kubelet.pem"
	kubeletKubeconfigFile = "kubelet.kubeconfig"
)

const (
	kubeletLifetime = 365 * 24 * time.Hour
	kubeletOverlap  = kubeletLifetime / 3 // a certificate that ends within it is replaced
)

// KubeletCertificate returns the file with the certificate and the key of the kubelet, in the directory of
// the credentials.
func KubeletCertificate(dir string) string { return filepath.Join(dir, kubeletFile) }

// Kubelet issues the client certificate of the kubelet of this node. Its files are for this user
// and root alone. It is not safe for concurrent use.
type Kubelet struct {
	by     *Credentials
	dir    string
	accept *access.Kubelet
	ends   time.Time // of the certificate in the file; zero if it was not looked at
}

// NewKubelet returns the Kubelet of a node, whose files are in the directory of the credentials.
func (c *Credentials) NewKubelet(dir, node string) *Kubelet {
	return &Kubelet{by: c, dir: dir, accept: access.NewKubelet(node, c.ca)}
}

// Accept returns what accepts the certificate.
func (k *Kubelet) Accept() *access.Kubelet { return k.accept }

// Renew issues a certificate unless there is one that can be used for long enough. The kubelet reads the
// file again within minutes.
func (k *Kubelet) Renew(now time.Time) error {
	if k.ends.Sub(sane(now)) >= kubeletOverlap {
		return nil
	}
	path := KubeletCertificate(k.dir)
	raw, err := os.ReadFile(path)
	if err == nil {
		if k.ends, err = k.parse(raw, now); err == nil {
			return nil
		}
	}
	reason := err
	if raw, err = k.issue(now); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := files.WriteAtomic(path, raw); err != nil {
		return err
	}
	if k.ends, err = k.parse(raw, now); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	k.by.log.Info("issued a client certificate to the kubelet of this node", "file", path, "reason", reason)
	return nil
}

// errEnds is the reason to replace a certificate that can be used for a while yet.
var errEnds = errors.New("it ends")

// parse returns the end of the certificate in a file, with an error if another one has to replace it.
func (k *Kubelet) parse(raw []byte, now time.Time) (ends time.Time, err error) {
	pair, err := tls.X509KeyPair(raw, raw)
	if err != nil {
		return time.Time{}, errors.New("it has no certificate with its key") // err may have parts of the file
	}
	if ends = pair.Leaf.NotAfter; ends.Sub(sane(now)) < kubeletOverlap {
		return time.Time{}, fmt.Errorf("%w on %s", errEnds, ends.Format(time.DateOnly))
	}
	if _, err := k.accept.User(pair.Leaf, sane(now)); err != nil {
		return time.Time{}, err
	}
	return ends, nil
}

// issue returns a new certificate and its key, in PEM.
func (k *Kubelet) issue(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject:   k.accept.Subject(),
		NotBefore: validFrom, NotAfter: sane(now).Add(kubeletLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, k.by.ca, key.Public(), k.by.key)
	if err != nil {
		return nil, err
	}
	issued, err := cert.EncodeCertificates(&x509.Certificate{Raw: der})
	if err != nil {
		return nil, err
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	return append(issued, private...), err
}

// WriteKubeconfig writes a kubeconfig for the kubelet unless it is there: for an address whose certificate is
// of the authorities ca, in PEM.
func (k *Kubelet) WriteKubeconfig(address string, ca []byte) error {
	file, err := filepath.Abs(KubeletCertificate(k.dir))
	if err != nil {
		return err
	}
	raw, err := Kubeconfig(address, ca, &clientcmdapi.AuthInfo{ClientCertificate: file, ClientKey: file})
	if err != nil {
		return err
	}
	path := filepath.Join(k.dir, kubeletKubeconfigFile)
	if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, raw) {
		return nil
	}
	return files.WriteAtomic(path, raw)
}

// RemoveKubelet removes the files of a Kubelet from the directory of the credentials, if there are any.
func RemoveKubelet(dir string) (err error) {
	for _, name := range []string{kubeletKubeconfigFile, kubeletFile} {
		path := filepath.Join(dir, name)
		if _, missing := os.Lstat(path); missing == nil { // a read-only disk refuses the removal of no file, too
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}
