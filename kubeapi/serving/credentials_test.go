package serving

import (
	"bytes"
	"crypto/x509"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	now  = time.Date(2027, time.May, 4, 12, 0, 0, 0, time.UTC)
	year = 365 * 24 * time.Hour
)

// ensureAt returns the credentials at a time, and what was logged.
func ensureAt(t *testing.T, dir string, at time.Time) (*Credentials, string) {
	t.Helper()
	var log bytes.Buffer
	c, err := Ensure(dir, at, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	require.NotContains(t, log.String(), c.Token)
	c.log = slog.New(slog.DiscardHandler) // so that credentials can be compared
	return c, log.String()
}

// verify checks the serving certificate of c as a client does that has the authority ca.
func verify(t *testing.T, c *Credentials, ca []byte, at time.Time, name string) error {
	t.Helper()
	serving, err := c.certificate("127.0.0.5")
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(serving.Certificate[0])
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, DNSName: name})
	return err
}

func TestEnsure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "kubernetes-api")
	_, _, err := Read(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)

	first, log := ensureAt(t, dir, now)
	require.Equal(t, 3, strings.Count(log, "level=INFO"), log)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode(), f.Name())
	}

	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // what is tested
	second, log := ensureAt(t, dir, now.Add(time.Hour))
	require.Empty(t, log)
	require.Equal(t, first, second)
	info, err = os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), "the key is readable for this user only")

	ca, token, err := Read(dir)
	require.NoError(t, err)
	require.Equal(t, first.CA, ca)
	require.Equal(t, first.Token, token)
	require.Len(t, token, 43)

	other, _ := ensureAt(t, t.TempDir(), now)
	require.NotEqual(t, first.Token, other.Token)
	require.Error(t, verify(t, other, ca, now, "localhost"), "each node has its own authority")
}

func TestCertificateNames(t *testing.T) {
	c, _ := ensureAt(t, t.TempDir(), now)
	names := []string{"localhost", "127.0.0.1", "::1", "127.0.0.5"}
	if host, err := os.Hostname(); err == nil && !strings.ContainsAny(host, "_") {
		names = append(names, host)
	}
	for _, name := range names {
		require.NoError(t, verify(t, c, c.CA, now, name), name)
	}
	require.ErrorContains(t, verify(t, c, c.CA, now, "192.0.2.1"), "192.0.2.1")
}

func TestEnsureReplaces(t *testing.T) {
	elsewhere := t.TempDir()
	other, _ := ensureAt(t, elsewhere, now)
	leaf, err := other.certificate("localhost")
	require.NoError(t, err)
	othersKey, err := os.ReadFile(filepath.Join(elsewhere, keyFile))
	require.NoError(t, err)
	for _, tc := range []struct {
		name, file, content string
		reason              string
		replaced            []string
	}{
		{name: "empty key", file: keyFile, reason: "does not contain a valid", replaced: []string{keyFile, certFile}},
		{name: "key of zeros", file: keyFile, content: strings.Repeat("\x00", 4096), reason: "does not contain a valid", replaced: []string{keyFile, certFile}},
		{name: "another key", file: keyFile, content: string(othersKey), reason: "for another key", replaced: []string{certFile}},
		{name: "empty certificate", file: certFile, reason: "does not contain any valid", replaced: []string{certFile}},
		{name: "another certificate", file: certFile, content: string(other.CA), reason: "for another key", replaced: []string{certFile}},
		{name: "bad DER", file: certFile, content: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", reason: "x509", replaced: []string{certFile}},
		{name: "not a certificate", file: certFile, content: string(leaf.Certificate[0]), reason: "does not contain any valid", replaced: []string{certFile}},
		{name: "empty token", file: tokenFile, reason: "not a token", replaced: []string{tokenFile}},
		{name: "short token", file: tokenFile, content: "c2hvcnQ", reason: "not a token", replaced: []string{tokenFile}},
		{name: "text", file: tokenFile, content: "correct horse battery staple", reason: "not a token", replaced: []string{tokenFile}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			before, _ := ensureAt(t, dir, now)
			require.NoError(t, os.WriteFile(filepath.Join(dir, tc.file), []byte(tc.content), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, tc.file+".tmp"), []byte("left by a crash"), 0o600))
			after, log := ensureAt(t, dir, now)
			require.Equal(t, len(tc.replaced), strings.Count(log, "level=WARN"), log)
			for _, file := range tc.replaced {
				require.Contains(t, log, file)
			}
			require.Contains(t, log, tc.reason)
			require.NotContains(t, log, "correct horse", "the file may hold a secret")
			require.NoError(t, verify(t, after, after.CA, now, "localhost"))
			if tc.file != tokenFile {
				require.Equal(t, before.Token, after.Token)
			}
			again, log := ensureAt(t, dir, now)
			require.Empty(t, log)
			require.Equal(t, after, again)
		})
	}
}

// TestCertificateClocks checks that clients accept the serving certificate whatever the clock was at
// the start, and that one that ends soon is replaced.
func TestCertificateClocks(t *testing.T) {
	epoch := time.Unix(0, 0)
	t.Run("made in 1970", func(t *testing.T) {
		dir := t.TempDir()
		c, _ := ensureAt(t, dir, epoch)
		for _, at := range []time.Time{epoch.Add(time.Second), now, written.Add(lifetime - time.Hour)} {
			require.NoError(t, verify(t, c, c.CA, at, "localhost"), at.String())
		}
		_, log := ensureAt(t, dir, now)
		require.Empty(t, log)
	})
	t.Run("started again in 1970", func(t *testing.T) {
		dir := t.TempDir()
		first, _ := ensureAt(t, dir, now)
		again, log := ensureAt(t, dir, epoch)
		require.Empty(t, log)
		require.Equal(t, first, again)
	})
	t.Run("ends soon", func(t *testing.T) {
		dir := t.TempDir()
		first, _ := ensureAt(t, dir, now)
		_, log := ensureAt(t, dir, now.Add(9*year))
		require.Empty(t, log, "a year is left")
		soon := now.Add(9*year + time.Second)
		second, log := ensureAt(t, dir, soon)
		require.Contains(t, log, "it ends on 2037-05-01")
		require.NotEqual(t, first.CA, second.CA)
		require.Equal(t, first.Token, second.Token)
		require.NoError(t, verify(t, second, first.CA, soon, "localhost"), "the kubeconfigs in use stay valid")
		require.NoError(t, verify(t, second, second.CA, now.Add(19*year), "localhost"))
	})
	t.Run("ended", func(t *testing.T) {
		dir := t.TempDir()
		first, _ := ensureAt(t, dir, now)
		c, log := ensureAt(t, dir, now.Add(50*year))
		require.Contains(t, log, "it ends on 2037-05-01")
		require.NoError(t, verify(t, c, c.CA, now.Add(51*year), "localhost"))
		require.NoError(t, verify(t, c, first.CA, now, "localhost"), "the clock was wrong, and the kubeconfigs in use stay valid")
	})
}

func TestEnsureErrors(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Ensure(file, now, log)
	require.ErrorContains(t, err, file)

	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, tokenFile, "sub"), 0o700))
	_, err = Ensure(dir, now, log)
	require.ErrorContains(t, err, filepath.Join(dir, tokenFile), "a directory is not removed")

	dir = t.TempDir()
	ensureAt(t, dir, now)
	require.NoError(t, os.WriteFile(filepath.Join(dir, tokenFile), []byte("x"), 0o600))
	_, _, err = Read(dir)
	require.ErrorContains(t, err, "not a token")

	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, keyFile), 0))
	_, err = Ensure(dir, now, log)
	require.ErrorIs(t, err, fs.ErrPermission)
}

// TestAddressChanges: the certificate names the address that is listened on, and no other one that was
// given before. The authority stays, so that clients trust both.
func TestAddressChanges(t *testing.T) {
	c, _ := ensureAt(t, t.TempDir(), now)
	for _, tc := range []struct{ host, other string }{{"127.0.0.7", "127.0.0.8"}, {"127.0.0.8", "127.0.0.7"}} {
		l, err := c.Listen(net.JoinHostPort(tc.host, "0"), Files{}, nil)
		require.NoError(t, err)
		run(t, NewServer(pods, slog.New(slog.DiscardHandler)), l)
		answer, err := client(t, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: c.CA}}).Get("https://" + l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		leaf := answer.TLS.PeerCertificates[0]
		require.NoError(t, leaf.VerifyHostname(tc.host))
		require.Error(t, leaf.VerifyHostname(tc.other))
	}
}

func TestLoopbackHost(t *testing.T) {
	c, _ := ensureAt(t, t.TempDir(), now)
	serving, err := c.certificate("localhost")
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(serving.Certificate[0])
	require.NoError(t, err)
	require.Len(t, leaf.IPAddresses, 2)
	require.True(t, leaf.IPAddresses[0].Equal(net.IPv4(127, 0, 0, 1)))
	require.NotContains(t, leaf.DNSNames, "")
}
