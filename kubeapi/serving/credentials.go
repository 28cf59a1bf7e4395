package serving

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/snapcache/snapcache/internal/files"
)

// The files of a directory of credentials.
const (
	keyFile   = "ca.key"
	certFile  = "ca.crt"
	tokenFile = "token"
)

const tokenBytes = 32

// Credentials are the token and the certificate authority of the TCP listener.
type Credentials struct {
	// CA is the certificate of the authority, in PEM.
	CA []byte
	// Token is the bearer token of the clients.
	Token string
	// Issued returns a certificate that is served in place of the agent's own; nil, also as the function, for
	// none. It is called for each connection.
	Issued func() *tls.Certificate

	ca     *x509.Certificate
	key    crypto.Signer
	log    *slog.Logger
	served atomic.Pointer[func() *tls.Certificate]
}

// Dir returns the directory of the credentials of an agent with a database at path.
func Dir(path string) string { return filepath.Join(filepath.Dir(path), "kubernetes-api") }

// Ensure returns the credentials in a directory, which is for this user only. It makes missing
// ones, and replaces any that can't be used; it logs both. If the disk takes no writes, they belong to this
// process alone.
func Ensure(dir string, now time.Time, log *slog.Logger) (*Credentials, error) {
	refusal := private(dir)
	if refusal != nil && !files.RefusesWrites(refusal) {
		return nil, refusal
	}
	write := func(path string, content []byte) error {
		if refusal != nil {
			return refusal
		}
		return files.WriteAtomic(path, content)
	}
	c := &Credentials{log: log}
	var err error
	if c.key, err = ensure(filepath.Join(dir, keyFile), write, log, parseKey, newKey); err != nil {
		return nil, err
	}
	parse := func(raw []byte) (*x509.Certificate, error) { return parseCA(raw, c.key.Public(), now) }
	c.ca, err = ensure(filepath.Join(dir, certFile), write, log, parse, func() ([]byte, error) { return newCA(c.key, now) })
	if err != nil {
		return nil, err
	}
	if c.CA, err = cert.EncodeCertificates(c.ca); err != nil {
		return nil, err
	}
	if c.Token, err = ensure(filepath.Join(dir, tokenFile), write, log, parseToken, newToken); err != nil {
		return nil, err
	}
	return c, nil
}

// PublicKey returns the key of the authority. It differs between agents, and stays over restarts.
func (c *Credentials) PublicKey() crypto.PublicKey { return c.key.Public() }

// private makes a directory that is for this user only.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() == 0o700 {
		return err
	}
	return os.Chmod(dir, 0o700) //nolint:gosec // a directory needs the execute bit
}

// Read returns a client's credentials, from a directory that [Ensure] has filled. The error is
// [fs.ErrNotExist] if no agent has done so.
func Read(dir string) (ca []byte, token string, err error) {
	if ca, err = os.ReadFile(filepath.Join(dir, certFile)); err != nil {
		return nil, "", err
	}
	path := filepath.Join(dir, tokenFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	if token, err = parseToken(raw); err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return ca, token, nil
}

// ensure returns the parsed content of a file. If the file is missing or can't be used, ensure makes and
// writes another content.
func ensure[T any](
	path string, write func(string, []byte) error, log *slog.Logger, parse func([]byte) (T, error), create func() ([]byte, error),
) (T, error) {
	var none T
	raw, err := os.ReadFile(path)
	if err == nil {
		var found T
		if found, err = parse(raw); err == nil {
			return found, nil
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return none, err
	}
	reason := err
	if raw, err = create(); err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	if err := write(path, raw); files.RefusesWrites(err) {
		log.Error("a credential of the Kubernetes API can't be written, so that no client knows it: the next start makes another one",
			"file", path, "error", err)
		return parse(raw)
	} else if err != nil {
		return none, err
	}
	if errors.Is(reason, fs.ErrNotExist) {
		log.Info("made a credential of the Kubernetes API", "file", path)
	} else {
		log.Warn("replaced a credential of the Kubernetes API: kubeconfigs that contain it may have to be made again",
			"file", path, "reason", reason)
	}
	return parse(raw)
}

func newKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return keyutil.MarshalPrivateKeyToPEM(key)
}

func parseKey(raw []byte) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(raw)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T can't sign", key)
	}
	return signer, nil
}

func newToken() ([]byte, error) {
	token := make([]byte, tokenBytes)
	if _, err := rand.Read(token); err != nil {
		return nil, err
	}
	return append([]byte(base64.RawURLEncoding.EncodeToString(token)), '\n'), nil
}

// parseToken returns the token in a file. Its errors do not contain it.
func parseToken(raw []byte) (string, error) {
	token := string(bytes.TrimSpace(raw))
	decoded, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(decoded) != tokenBytes {
		return "", fmt.Errorf("not a token: base64 of %d bytes expected", tokenBytes)
	}
	return token, nil
}
