package serving

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"

	"github.com/snapcache/snapcache/internal/files"
)

// Files name a certificate and its key, in PEM.
type Files struct {
	Cert, Key string

	// Authority means that they are an authority's, which issues the certificate that is served.
	Authority bool
}

// keyPair is the certificate of files. They are read again when they have changed, so that a renewed
// certificate is used from the next connection on. It is safe for concurrent use.
type keyPair struct {
	of   Files
	host string // of the address that is served
	log  *slog.Logger

	mu    sync.Mutex
	files files.Seen
	pair  *tls.Certificate
	fault string // of the files as they are, empty for none
}

func newKeyPair(of Files, host string, log *slog.Logger) (*keyPair, error) {
	k := &keyPair{of: of, host: host, log: log}
	return k, k.read()
}

// get returns the certificate for a connection. If the changed files can't be used, perhaps because
// only one of them is written yet, that is the previous one.
func (k *keyPair) get() *tls.Certificate {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.files.Unchanged() {
		fault := ""
		if err := k.read(); err != nil {
			fault = err.Error()
		}
		if fault != "" && fault != k.fault {
			k.log.Warn("the changed certificate of kubernetesAPI can't be used, its predecessor is used on", "err", fault)
		}
		k.fault = fault
	}
	return k.pair
}

// read reads the files. After an error they are read again when they have changed, or if one could not be
// read.
func (k *keyPair) read() error {
	k.files = files.Seen{}
	cert, err := k.files.Read(k.of.Cert)
	if err != nil {
		return err
	}
	key, err := k.files.Read(k.of.Key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", k.of.Cert, k.of.Key, err)
	}
	issued := &pair
	if k.of.Authority {
		if issued, err = issueBy(&pair, k.host); err != nil {
			return fmt.Errorf("%s: %w", k.of.Cert, err)
		}
	}
	k.pair = issued
	return nil
}
