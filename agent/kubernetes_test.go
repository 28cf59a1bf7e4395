package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/kubernetes"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/kubeapi/serving"
)

// freeAddress returns a loopback address that no process listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// kubeClient returns a client of the agent's Kubernetes API on TCP.
func (n *node) kubeClient(t *testing.T) *http.Client {
	t.Helper()
	ca, token, err := serving.Read(serving.Dir(n.cfg.Store.Path))
	require.NoError(t, err)
	c, err := rest.HTTPClientFor(&rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (n *node) socketClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", n.cfg.KubernetesAPI.Socket)
		},
	}}
}

func TestKubernetesAPI(t *testing.T) {
	n := newNode(t, podsOnly)
	n.cfg.KubernetesAPI = config.KubernetesAPI{Address: freeAddress(t), Socket: filepath.Join(n.dir, "run", "kube.sock")}
	client, stop := n.run(t, io.Discard)
	require.Eventually(t, func() bool {
		status, err := client.Status(t.Context())
		return err == nil && status.Collections[0].Problem != ""
	}, time.Minute, time.Millisecond, "the server can't be asked")
	for _, tc := range []struct {
		name   string
		client *http.Client
		url    string
	}{
		{"TCP", n.kubeClient(t), "https://" + n.cfg.KubernetesAPI.Address},
		{"socket", n.socketClient(), "http://localhost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, err := tc.client.Get(tc.url + "/api/v1/pods")
			require.NoError(t, err)
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode, "the server has not named the resource yet")
			require.Contains(t, string(body), `"kind":"Status"`)
		})
	}
	ca, _, err := serving.Read(serving.Dir(n.cfg.Store.Path))
	require.NoError(t, err)
	stranger, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	require.NoError(t, err)
	t.Cleanup(stranger.CloseIdleConnections)
	answer, err := stranger.Get("https://" + n.cfg.KubernetesAPI.Address + "/api/v1/pods")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode, "TCP needs the token")
	require.NoError(t, stop())
	require.NoFileExists(t, n.cfg.KubernetesAPI.Socket)
}

// TestKubernetesAPIMetrics checks that the metrics are served to callers that the API knows, unless they
// are disabled.
func TestKubernetesAPIMetrics(t *testing.T) {
	for _, tc := range []struct {
		name, metrics string
		want          int
	}{
		{"enabled", "metrics: {address: '127.0.0.1:0'}", http.StatusOK},
		{"disabled", "metrics: {disabled: true}", http.StatusNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, podsOnly+"\n"+tc.metrics)
			n.cfg.KubernetesAPI = config.KubernetesAPI{Address: freeAddress(t)}
			_, stop := n.run(t, io.Discard)
			url := "https://" + n.cfg.KubernetesAPI.Address + "/metrics"
			code, body := get(t, n.kubeClient(t), url)
			require.Equal(t, tc.want, code)
			if code == http.StatusOK {
				require.Contains(t, body, "snapcache_build_info")
			}
			ca, _, err := serving.Read(serving.Dir(n.cfg.Store.Path))
			require.NoError(t, err)
			stranger, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
			require.NoError(t, err)
			t.Cleanup(stranger.CloseIdleConnections)
			code, _ = get(t, stranger, url)
			require.Equal(t, http.StatusUnauthorized, code)
			require.NoError(t, stop())
		})
	}
}

// TestKubernetesAPIWatchesEnd checks that requests that last end with the agent, and at once.
func TestKubernetesAPIWatchesEnd(t *testing.T) {
	n := newNode(t, podsOnly)
	n.cfg.KubernetesAPI = config.KubernetesAPI{Address: freeAddress(t), Socket: filepath.Join(n.dir, "run", "kube.sock")}
	watching := make(chan struct{})
	api, err := kubernetes.New(kubernetes.Options{
		Config: func() *config.AgentConfiguration { return n.cfg }, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	api.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		watching <- struct{}{}
		<-r.Context().Done()
	})
	listeners, err := api.Listen()
	require.NoError(t, err)
	require.Len(t, listeners, 2)
	ctx, cancel := context.WithCancel(t.Context())
	served, ended := make(chan error), make(chan error)
	for _, l := range listeners {
		go func() { served <- serveOn(l.Listener, l.Server)(ctx) }()
	}
	watch := func(client *http.Client, url string) {
		answer, err := client.Get(url)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			err = errors.Join(err, answer.Body.Close())
		}
		ended <- err
	}
	go watch(n.kubeClient(t), "https://"+n.cfg.KubernetesAPI.Address)
	go watch(n.socketClient(), "http://localhost")
	<-watching
	<-watching
	cancel()
	for range 2 {
		require.NoError(t, <-ended, "no client is cut off")
		require.NoError(t, <-served)
	}
}

func TestKubernetesAPIErrors(t *testing.T) {
	n := newNode(t, podsOnly)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	socket := filepath.Join(n.dir, "run", "kube.sock")
	for _, tc := range []struct {
		name string
		cfg  config.KubernetesAPI
		want string
	}{
		{"port in use", config.KubernetesAPI{Address: taken.Addr().String(), Socket: socket}, "address already in use: another program listens there: end it, or give another address"},
		{"address of another machine", config.KubernetesAPI{Address: "192.0.2.1:6445", Socket: socket},
			"this machine does not have it, or not yet: add it to an interface, or give another address"},
		{"no certificate", config.KubernetesAPI{Address: freeAddress(t), Socket: socket, CertFile: "absent.crt", KeyFile: "absent.key"}, "certificate: open absent.crt"},
		{"no socket", config.KubernetesAPI{Socket: n.dir}, "not a socket"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.cfg.KubernetesAPI = tc.cfg
			err := Run(t.Context(), n.cfg, Options{})
			require.ErrorContains(t, err, "kubernetesAPI: ")
			require.ErrorContains(t, err, tc.want)
			require.NoFileExists(t, socket)
			require.NoFileExists(t, n.cfg.LocalAPI.Socket)
		})
	}
}
