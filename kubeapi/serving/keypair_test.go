package serving

import (
	"crypto/tls"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

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
	k, err := newKeyPair(certFile, keyFile, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	requirePair := func(want tls.Certificate) {
		t.Helper()
		for range 3 {
			got, err := k.get(nil)
			require.NoError(t, err)
			require.Equal(t, want.Certificate[0], got.Certificate[0])
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
	l, err := c.Listen("127.0.0.1:0", "", "", nil)
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
