package serving

import (
	"bytes"
	"crypto/tls"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/snapcache/snapcache/access"
)

// renewed returns the kubelet's certificate after a renewal at a time, and what was logged.
func renewed(t *testing.T, dir, node string, at time.Time) (tls.Certificate, string) {
	t.Helper()
	var log bytes.Buffer
	c, _ := ensureAt(t, dir, at)
	c.log = slog.New(slog.NewTextHandler(&log, nil))
	require.NoError(t, c.NewKubelet(dir, node).Renew(at))
	return readKubelet(t, dir), log.String()
}

func readKubelet(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(KubeletCertificate(dir), KubeletCertificate(dir))
	require.NoError(t, err)
	return pair
}

// TestKubeletClocks: the certificate is valid whatever the clock is, is renewed in time, also by an agent
// that runs on, and one that was made by a clock that was ahead stays.
func TestKubeletClocks(t *testing.T) {
	epoch, month := time.Unix(0, 0), 30*24*time.Hour
	for name, tc := range map[string]struct {
		made, then time.Time
		renewed    bool
	}{
		"the same day":             {now, now, false},
		"months later":             {now, now.Add(8 * month), false},
		"near its end":             {now, now.Add(9 * month), true},
		"years after its end":      {now, now.Add(5 * year), true},
		"made in 1970":             {epoch, written.Add(month), false},
		"made in 1970, for longer": {epoch, now.Add(8 * month), true},
		"started again in 1970":    {now, epoch, false},
		"the clock was ahead":      {now.Add(5 * year), now, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first, log := renewed(t, dir, "edge-1", tc.made)
			require.Contains(t, log, "issued a client certificate")
			check := func(second tls.Certificate) {
				t.Helper()
				require.Equal(t, tc.renewed, !bytes.Equal(first.Certificate[0], second.Certificate[0]))
				require.True(t, second.Leaf.NotAfter.After(sane(tc.then).Add(kubeletOverlap-time.Second)))
				for _, at := range []time.Time{epoch, written, tc.then} {
					c, _ := ensureAt(t, dir, tc.then)
					_, err := c.NewKubelet(dir, "edge-1").Accept().User(second.Leaf, at)
					require.NoError(t, err, at)
				}
			}
			c, _ := ensureAt(t, dir, tc.made)
			k := c.NewKubelet(dir, "edge-1")
			require.NoError(t, k.Renew(tc.made))
			require.NoError(t, k.Renew(tc.then))
			check(readKubelet(t, dir))

			dir = t.TempDir() // and with a restart between
			first, _ = renewed(t, dir, "edge-1", tc.made)
			second, log := renewed(t, dir, "edge-1", tc.then)
			check(second)
			require.Equal(t, tc.renewed, strings.Contains(log, "issued"), log)
		})
	}
}

// TestKubeletFiles: the files are for this user alone. A certificate of another node or authority, or a
// damaged file, is replaced. They are removed together.
func TestKubeletFiles(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	other, _ := renewed(t, elsewhere, "edge-1", now)
	foreign, err := os.ReadFile(KubeletCertificate(elsewhere))
	require.NoError(t, err)
	for _, tc := range []struct{ node, content string }{
		{"edge-1", ""},
		{"edge-2", ""}, // the node has another name
		{"edge-2", string(foreign)},
		{"edge-2", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
		{"edge-2", "\x00\x00"},
	} {
		if tc.content != "" {
			require.NoError(t, os.WriteFile(KubeletCertificate(dir), []byte(tc.content), 0o600))
		}
		pair, log := renewed(t, dir, tc.node, now)
		require.Contains(t, log, "issued")
		require.Equal(t, "system:node:"+tc.node, pair.Leaf.Subject.CommonName)
		require.Equal(t, []string{"system:nodes"}, pair.Leaf.Subject.Organization)
		require.NotEqual(t, other.Certificate, pair.Certificate)
		_, log = renewed(t, dir, tc.node, now)
		require.Empty(t, log)
	}
	c, _ := ensureAt(t, dir, now)
	require.NoError(t, c.NewKubelet(dir, "edge-2").WriteKubeconfig("127.0.0.1:6445", c.CA))
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, all, 5)
	for _, f := range all {
		info, err := f.Info()
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode(), f.Name())
	}
	for range 2 {
		require.NoError(t, RemoveKubelet(dir))
		require.NoFileExists(t, KubeletCertificate(dir))
		require.NoFileExists(t, filepath.Join(dir, kubeletKubeconfigFile))
	}
	require.NoError(t, RemoveKubelet(filepath.Join(dir, "absent")))
	require.Error(t, c.NewKubelet(filepath.Join(dir, "absent"), "edge-1").Renew(now))
}

// TestKubeletKubeconfig: a client with the kubeconfig is the kubelet for the listener. A certificate of the
// same authority for another node is no one's.
func TestKubeletKubeconfig(t *testing.T) {
	dir := t.TempDir()
	c, _ := ensureAt(t, dir, time.Now())
	k := c.NewKubelet(dir, "edge-1")
	require.NoError(t, k.Renew(time.Now()))
	listener, err := c.Listen("127.0.0.1:0", Files{}, nil)
	require.NoError(t, err)
	require.NoError(t, k.WriteKubeconfig(listener.Addr().String(), c.CA))
	callers := access.NewAuthenticator(access.AuthenticatorOptions{Kubelet: k.Accept()})
	run(t, NewServer(Authenticate(callers, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(access.CallerOf(r.Context()).User.Username))
	})), slog.New(slog.DiscardHandler)), listener)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, kubeletKubeconfigFile))
	require.NoError(t, err)
	get := func() (code int, user string) {
		t.Helper()
		config := rest.CopyConfig(config)
		require.Equal(t, KubeletCertificate(dir), config.CertFile)
		require.Equal(t, KubeletCertificate(dir), config.KeyFile)
		config.CertData, err = os.ReadFile(config.CertFile)
		require.NoError(t, err)
		config.KeyData, config.CertFile, config.KeyFile = config.CertData, "", "" // client-go's task that reads files again has no end
		answer, err := client(t, config).Get(config.Host + "/api")
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
	code, user := get()
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "system:node:edge-1", user)

	require.NoError(t, c.NewKubelet(dir, "edge-2").Renew(time.Now()))
	code, _ = get()
	require.Equal(t, http.StatusUnauthorized, code)
}
