package kubernetes

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// kubeletOf opens the API of an agent whose files are in dir.
func kubeletOf(t *testing.T, dir string, clock *clocktesting.FakeClock, change func(*config.AgentConfiguration)) *API {
	t.Helper()
	cfg := &config.AgentConfiguration{Profile: config.ProfileNode, NodeName: "edge-1"}
	cfg.Store.Path = filepath.Join(dir, "cache.db")
	cfg.KubernetesAPI = config.KubernetesAPI{Address: "127.0.0.1:6445", Access: config.Access{Enabled: true, IssueKubeletCertificate: true}}
	cfg.KubernetesAPI.Access.RememberFor.Duration = time.Hour
	change(cfg)
	a, err := New(Options{
		Config: func() *config.AgentConfiguration { return cfg }, All: func() []*collection.Collection { return nil },
		Clock: clock, Log: slog.New(slog.DiscardHandler),
		OpenStore: func(path string) (store.DB, error) { return bolt.Open(path, bolt.Options{}) },
	})
	require.NoError(t, err)
	return a
}

// accepts reports whether the API has a caller for the certificate in the kubelet's kubeconfig.
func (a *API) accepts(t *testing.T, pair tls.Certificate) bool {
	t.Helper()
	r := httptest.NewRequest("GET", "/api", nil)
	r.RemoteAddr = "127.0.0.1:40000"
	r.TLS = &tls.ConnectionState{}
	r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, pair.Leaf)
	c, err := a.callers.Caller(r)
	return err == nil && c.User.Username == "system:node:edge-1"
}

// TestKubelet: a kubelet gets a kubeconfig if that is configured, whatever happened to the files, and
// loses it when it is not any more.
func TestKubelet(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(start)
	file := filepath.Join(dir, "kubernetes-api", "kubelet.kubeconfig")
	read := func() tls.Certificate {
		t.Helper()
		found, err := clientcmd.BuildConfigFromFlags("", file)
		require.NoError(t, err)
		require.Equal(t, "https://127.0.0.1:6445", found.Host)
		pair, err := tls.LoadX509KeyPair(found.CertFile, found.KeyFile)
		require.NoError(t, err)
		return pair
	}
	unchanged := func(*config.AgentConfiguration) {}

	a := kubeletOf(t, dir, clock, unchanged)
	first := read()
	require.True(t, a.accepts(t, first))
	require.NoError(t, a.Close())
	require.NoError(t, os.WriteFile(file, []byte("torn"), 0o600))
	a = kubeletOf(t, dir, clock, unchanged)
	require.True(t, a.accepts(t, first))
	require.Equal(t, first.Certificate, read().Certificate, "it is not issued again")
	require.NoError(t, a.Close())

	for name, off := range map[string]func(*config.AgentConfiguration){
		"the field":   func(c *config.AgentConfiguration) { c.KubernetesAPI.Access.IssueKubeletCertificate = false },
		"all access":  func(c *config.AgentConfiguration) { c.KubernetesAPI.Access = config.Access{} },
		"the address": func(c *config.AgentConfiguration) { c.KubernetesAPI = config.KubernetesAPI{} },
	} {
		a := kubeletOf(t, dir, clock, unchanged)
		before := read()
		require.NoError(t, a.Close())
		a = kubeletOf(t, dir, clock, off)
		require.NoFileExists(t, file, name)
		require.NoFileExists(t, serving.KubeletCertificate(filepath.Dir(file)), name)
		if a.callers != nil {
			require.False(t, a.accepts(t, before), name)
		}
		require.NoError(t, a.Close())
	}
}

// TestKubelet_Refused: a kubelet's files that can't be written do not stop the agent, and the
// certificate of another node is not accepted.
func TestKubelet_Refused(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(start)
	a := kubeletOf(t, dir, clock, func(c *config.AgentConfiguration) { c.NodeName = "edge-2" })
	path := serving.KubeletCertificate(filepath.Join(dir, "kubernetes-api"))
	other, err := tls.LoadX509KeyPair(path, path)
	require.NoError(t, err)
	require.NoError(t, a.Close())

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.MkdirAll(filepath.Join(path, "sub"), 0o700))
	a = kubeletOf(t, dir, clock, func(*config.AgentConfiguration) {})
	require.False(t, a.accepts(t, other))
	require.NoError(t, a.Close())

	a = kubeletOf(t, t.TempDir(), clock, func(c *config.AgentConfiguration) { c.KubernetesAPI.CertFile = filepath.Join(dir, "absent") })
	require.NoError(t, a.Close())
}

// TestKubelet_Renewal: an agent that runs on renews the certificate, without a server, also when the clock
// was wrong at its start; then both are accepted for as long as they are valid.
func TestKubelet_Renewal(t *testing.T) {
	for name, began := range map[string]time.Time{"right": start, "in 1970": time.Unix(0, 0)} {
		t.Run(name, func(t *testing.T) {
			dir, clock := t.TempDir(), clocktesting.NewFakeClock(began)
			a := kubeletOf(t, dir, clock, func(*config.AgentConfiguration) {})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); a.renewKubelet(ctx) }()
			path := serving.KubeletCertificate(filepath.Join(dir, "kubernetes-api"))
			read := func() tls.Certificate {
				t.Helper()
				pair, err := tls.LoadX509KeyPair(path, path)
				require.NoError(t, err)
				return pair
			}
			look := func(at time.Time) {
				t.Helper()
				for range 2 { // the second one after the first look has ended
					require.Eventually(t, clock.HasWaiters, patience, time.Millisecond)
					clock.SetTime(at)
					at = at.Add(time.Minute)
				}
				require.Eventually(t, clock.HasWaiters, patience, time.Millisecond)
			}
			first := read()
			look(start.AddDate(0, 6, 0))
			require.Equal(t, first.Certificate, read().Certificate)
			look(start.AddDate(0, 9, 0))
			second := read()
			require.NotEqual(t, first.Certificate, second.Certificate)
			require.True(t, a.accepts(t, first))
			require.True(t, a.accepts(t, second))
			look(start.AddDate(1, 0, 10))
			require.False(t, a.accepts(t, first))
			require.True(t, a.accepts(t, second))
			look(start.AddDate(4, 0, 0)) // the machine was off, and began with an old time
			require.False(t, a.accepts(t, second))
			require.True(t, a.accepts(t, read()))
			cancel()
			<-done
			require.NoError(t, a.Close())
		})
	}
}
