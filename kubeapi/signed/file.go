package signed

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"

	"github.com/snapcache/snapcache/internal/files"
)

// The files, in the directory of the API's credentials.
const (
	certificateFile = "signed.pem"
	requestFile     = "signed-request.pem"
	authoritiesFile = "cluster-ca.crt"
)

// load reads the certificate and the key of the open request.
func (c *Certificate) load() {
	path := filepath.Join(c.opts.Dir, certificateFile)
	raw, err := os.ReadFile(path)
	if err == nil {
		var h *held
		if h, err = parseHeld(raw); err == nil {
			c.held.Store(h)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.opts.Log.Warn("kubernetesAPI: the signer's certificate can't be read, and is asked for again",
			"file", path, "error", err)
	}
	raw, err = os.ReadFile(filepath.Join(c.opts.Dir, requestFile))
	if err != nil || purposeOf(raw) != c.target.String() {
		return
	}
	key, _ := keyutil.ParsePrivateKeyPEM(raw) // of a torn file there is none
	c.key, _ = key.(crypto.Signer)
	if h := c.held.Load(); h != nil && c.key != nil && equal(c.key.Public(), h.pair.Leaf.PublicKey) {
		c.forgetKey() // its request was answered just before a crash
	}
}

func parseHeld(raw []byte) (*held, error) {
	pair, err := tls.X509KeyPair(raw, raw)
	if err != nil {
		return nil, errors.New("it has no certificate with its key") // err may have parts of the file
	}
	return &held{&pair, purposeOf(raw), renewal(pair.Leaf)}, nil
}

// purposeOf returns the target that is the first line of a file, before anything in PEM.
func purposeOf(raw []byte) string {
	line, _, _ := bytes.Cut(raw, []byte("\n"))
	purpose, _ := bytes.CutPrefix(line, []byte("# "))
	return string(purpose)
}

// write writes a file with the key, and its certificate. A disk that takes no writes does not stop the agent.
func (c *Certificate) write(name string, chain []byte) {
	path := filepath.Join(c.opts.Dir, name)
	raw, err := keyutil.MarshalPrivateKeyToPEM(c.key)
	if err == nil {
		head := fmt.Appendf(nil, "# %s\n%s\n", c.target, bytes.TrimSpace(chain))
		err = files.WriteAtomic(path, append(head, raw...))
	}
	if err != nil {
		c.opts.Log.Error("kubernetesAPI: the serving certificate's key can't be written: "+
			"after a restart the signer is asked again", "file", path, "error", err)
	}
}

// forgetKey forgets the key of the open request.
func (c *Certificate) forgetKey() {
	c.key = nil
	if err := remove(filepath.Join(c.opts.Dir, requestFile)); err != nil {
		c.opts.Log.Warn("kubernetesAPI: the key of a former request can't be deleted", "error", err)
	}
}

// remove removes a file, if there is one: a read-only disk refuses the removal of no file, too.
func remove(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return nil //nolint:nilerr // there is none
	}
	return os.Remove(path)
}

// Remove removes the files of a Certificate from the directory of the credentials.
func Remove(dir string) (err error) {
	for _, name := range []string{certificateFile, requestFile, authoritiesFile} {
		err = errors.Join(err, remove(filepath.Join(dir, name)))
	}
	return err
}

// WriteAuthorities writes the authorities of the agent's kubeconfig, for [Authorities], unless they are
// there.
func WriteAuthorities(dir string, server Server) error {
	ca, err := server.CA()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, authoritiesFile)
	if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, ca) {
		return nil
	}
	return files.WriteAtomic(path, ca)
}

// Authorities returns the authorities, in PEM, that clients of an agent with a signer have to trust: the
// agent's own, which counts until a certificate is issued, and the ones of its kubeconfig. The error is
// [ErrNotTrusted], beside the authorities, if the certificate in the directory is of neither, and
// [fs.ErrNotExist] if no agent with a signer has run.
func Authorities(dir string, own []byte) ([]byte, error) {
	cluster, err := os.ReadFile(filepath.Join(dir, authoritiesFile))
	if err != nil {
		return nil, err
	}
	all := append(bytes.TrimSpace(own), '\n')
	if cluster = bytes.TrimSpace(cluster); len(cluster) > 0 {
		all = append(append(all, cluster...), '\n')
	}
	raw, err := os.ReadFile(filepath.Join(dir, certificateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	h, err := parseHeld(raw)
	if err == nil {
		err = verify(h.pair, all)
	}
	if err != nil {
		return all, fmt.Errorf("%w: %w", ErrNotTrusted, err)
	}
	return all, nil
}

// ErrNotTrusted means that the authorities of the agent's kubeconfig have not issued the certificate.
var ErrNotTrusted = errors.New("the signer's certificate is not of the CA in the agent's kubeconfig")
