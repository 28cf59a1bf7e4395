package serving

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/keyutil"

	"github.com/snapcache/snapcache/internal/logging/logtest"
)

// TestKeyPairRenewed: a renewed certificate is used without a restart, and none that does not fit its
// key.
func TestKeyPairRenewed(t *testing.T) {
	c, _ := ensureAt(t, t.TempDir(), now)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	replace := func(name string, content []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(name+".new", content, 0o600))
		require.NoError(t, os.Rename(name+".new", name))
	}
	var pairs []tls.Certificate
	write := func(what string) {
		t.Helper()
		p := pairs[len(pairs)-1]
		if what == certFile {
			replace(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate[0]}))
			return
		}
		key, err := keyutil.MarshalPrivateKeyToPEM(p.PrivateKey)
		require.NoError(t, err)
		replace(keyFile, key)
	}
	renew := func() {
		t.Helper()
		p, err := c.certificate("127.0.0.1")
		require.NoError(t, err)
		pairs = append(pairs, p)
	}
	renew()
	write(certFile)
	write(keyFile)
	var log logtest.Buffer
	k, err := newKeyPair(Files{Cert: certFile, Key: keyFile}, "", slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	requirePair := func(want tls.Certificate) {
		t.Helper()
		for range 3 {
			require.Equal(t, want.Certificate[0], k.get().Certificate[0])
		}
	}
	requirePair(pairs[0])
	renew()
	write(certFile)
	requirePair(pairs[0])
	require.Equal(t, 1, strings.Count(log.String(), "can't be used"), log.String())
	write(keyFile)
	requirePair(pairs[1])
	require.NoError(t, os.Remove(certFile))
	requirePair(pairs[1])
	require.Equal(t, 2, strings.Count(log.String(), "can't be used"), log.String())
	renew()
	write(certFile)
	write(keyFile)
	requirePair(pairs[2])
	renew()
	require.NoError(t, os.Remove(keyFile))
	write(certFile)
	requirePair(pairs[2])
	write(keyFile)
	requirePair(pairs[3])
}

// TestIssued: a certificate that a signer issues while the listener is open is served from the next connection
// on, and the agent's own before that.
func TestIssued(t *testing.T) {
	c, _ := ensureAt(t, t.TempDir(), now)
	var issued atomic.Pointer[tls.Certificate]
	c.Issued = issued.Load
	l, err := c.Listen("127.0.0.1:0", Files{}, nil)
	require.NoError(t, err)
	run(t, NewServer(pods, slog.New(slog.DiscardHandler)), l)
	served := func() []byte {
		t.Helper()
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is compared
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Raw
	}
	own := served()
	for range 2 {
		next, err := c.certificate("127.0.0.1")
		require.NoError(t, err)
		require.Equal(t, own, served())
		issued.Store(&next)
		require.Equal(t, next.Certificate[0], served())
		own = next.Certificate[0]
	}
}

// authority returns an authority's certificate and key in files, limited to the addresses of a network if one is
// given.
func authority(t *testing.T, network string) (Files, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "fleet"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(year),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if network != "" {
		_, only, err := net.ParseCIDR(network)
		require.NoError(t, err)
		template.PermittedIPRanges = []*net.IPNet{only}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	ca, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return writeFiles(t, Files{Authority: true}, der, key), ca
}

func writeFiles(t *testing.T, of Files, der []byte, key crypto.PrivateKey) Files {
	t.Helper()
	dir := t.TempDir()
	if of.Cert == "" {
		of.Cert, of.Key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	}
	require.NoError(t, os.WriteFile(of.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	raw, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(of.Key, raw, 0o600))
	return of
}

// TestAuthority: with an authority in files, the agent issues its certificate by it, for its own address alone, and
// issues another one when the files have changed.
func TestAuthority(t *testing.T) {
	trusts := func(ca *x509.Certificate, served *tls.Certificate, name string) error {
		pool := x509.NewCertPool()
		pool.AddCert(ca)
		_, err := served.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, DNSName: name})
		return err
	}
	for _, tc := range []struct{ network, host string }{
		{"", "192.168.1.7"},
		{"192.168.0.0/16", "192.168.1.7"},
		{"", "edge-1.example.com"},
		{"", "fd00::7"},
	} {
		of, ca := authority(t, tc.network)
		var log logtest.Buffer
		k, err := newKeyPair(of, tc.host, slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		first := k.get()
		require.NoError(t, trusts(ca, first, tc.host))
		require.Error(t, trusts(ca, first, "127.0.0.1"))
		require.Error(t, trusts(ca, first, "localhost"))
		require.Len(t, first.Certificate, 2, "clients may trust an authority above this one")
		require.Equal(t, ca.NotAfter, first.Leaf.NotAfter)
		require.Same(t, first, k.get(), "one certificate for all connections")

		renewed, other := authority(t, "")
		require.NoError(t, os.Rename(renewed.Cert, of.Cert))
		require.Same(t, first, k.get(), "its key is not there yet")
		require.NoError(t, os.Rename(renewed.Key, of.Key))
		require.NoError(t, trusts(other, k.get(), tc.host))
		require.Equal(t, 1, strings.Count(log.String(), "can't be used"), log.String())
	}
}

// TestAuthorityRefused: files of which no certificate can be issued are refused.
func TestAuthorityRefused(t *testing.T) {
	c, _ := ensureAt(t, t.TempDir(), now)
	limited, _ := authority(t, "10.0.0.0/8")
	leaf, err := c.certificate("127.0.0.1")
	require.NoError(t, err)
	for _, tc := range []struct {
		of   Files
		want string
	}{
		{limited, "the authority can't issue a certificate for 127.0.0.1: "},
		{writeFiles(t, Files{Authority: true}, leaf.Certificate[0], leaf.PrivateKey),
			"not the certificate of an authority: give certFile and keyFile"},
		{Files{Cert: limited.Cert, Key: limited.Cert, Authority: true}, "private key"},
		{Files{Cert: "/nowhere", Key: limited.Key, Authority: true}, "no such file"},
	} {
		_, err := c.Listen("127.0.0.1:0", tc.of, nil)
		require.ErrorContains(t, err, tc.want)
		require.Nil(t, c.Served())
	}
}
