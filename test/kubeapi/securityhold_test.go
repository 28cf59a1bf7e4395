package kubeapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// unitBytes is the memory of the agent's unit, MemoryMax.
const unitBytes = 256 << 20

// confine limits the memory of the agent as its unit does, if this machine lets it: past the limit the kernel
// ends the agent. The bound on what is resident is checked in any case.
func (v *vault) confine(t *testing.T) {
	t.Helper()
	group := harness.NewMemoryGroup(t, unitBytes)
	if group == nil {
		t.Log("this machine has no cgroup for the agent")
		return
	}
	t.Cleanup(v.stop) // before the group is removed
	group.Add(t, v.agent.Cmd.Process.Pid)
}

// beside runs an attack while another client is served, and requires that the agent stays within bounds:
// that client waits less than two seconds for each answer, and memory stays below that of the unit. The
// attack calls held once all of it is there, which returns when the client has got more answers.
func (v *vault) beside(t *testing.T, served func(context.Context) error, attack func(t *testing.T, held func())) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var slowest, most, answers atomic.Int64
	var failed atomic.Value
	var client sync.WaitGroup
	client.Go(func() {
		// It keeps to the rate that each user has.
		for pace := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-pace.C {
			began := time.Now()
			asking, done := context.WithTimeout(ctx, patience)
			err := served(asking)
			done()
			slowest.Store(max(slowest.Load(), int64(time.Since(began))))
			if ctx.Err() != nil {
				return // it would have had to wait longer
			}
			if err != nil {
				failed.Store(err)
				return
			}
			answers.Add(1)
			most.Store(max(most.Load(), v.residentBytes(t)))
		}
	})
	attack(t, func() {
		enough := answers.Load() + 20
		require.Eventually(t, func() bool { return answers.Load() >= enough || failed.Load() != nil }, 2*patience, pollEvery)
	})
	cancel()
	client.Wait()
	require.Nil(t, failed.Load())
	t.Logf("%d answers, the slowest in %v; at most %d MiB resident", answers.Load(), time.Duration(slowest.Load()), most.Load()>>20)
	require.Positive(t, answers.Load())
	require.Less(t, time.Duration(slowest.Load()), 2*time.Second)
	require.Less(t, most.Load(), int64(unitBytes))
	require.NoError(t, served(t.Context()), "afterwards too")
}

// answered gets a URL, with a token if there is one, and reads the answer to its end.
func answered(ctx context.Context, client *http.Client, url, token string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the other client gets %s", answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// TestHeldMemory: what a client makes the agent hold, within all quotas on numbers, is bounded in bytes, and
// is in no one's way. For what needs no credentials see TestHeldConnections.
func TestHeldMemory(t *testing.T) {
	v := newVault(t)
	v.account(t, "reader", "", readRules...)
	reader := v.token(t, "reader", nil)
	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: map[string]string{"a": strings.Repeat("x", 900<<10)}}
	_, err := v.admin.CoreV1().ConfigMaps(mine).Create(t.Context(), large, metav1.CreateOptions{})
	require.NoError(t, err)
	v.confine(t)
	asReader := v.client(t)
	served := func(ctx context.Context) error { return answered(ctx, asReader, "https://"+v.address+secrets, reader) }
	require.NoError(t, served(t.Context()))
	configMaps := "/api/v1/namespaces/" + mine + "/configmaps"

	// open sends requests on few connections, whose answers are not read, and returns how many have which code.
	// Each call has a user of its own, who has sent nothing before: how many requests pass is that user's rate.
	// The server can send no more than a window of bytes before they are, 0 for the usual one.
	users := 0
	open := func(t *testing.T, window, n int, target func(i int) string, header http.Header) map[int]int {
		users++
		name := fmt.Sprint("watching-", users)
		v.account(t, name, mine, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"watch", "get"}})
		watching := v.token(t, name, nil)
		client, codes := v.client(t), map[int]int{}
		client.Timeout = 0
		if window > 0 {
			client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: window, MaxReceiveBufferPerStream: window}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answers := make([]*http.Response, n)
		var senders errgroup.Group
		senders.SetLimit(16)
		for i := range n {
			senders.Go(func() error {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+v.address+target(i), nil)
				if err != nil {
					return err
				}
				r.Header = header.Clone()
				r.Header.Set("Authorization", "Bearer "+watching)
				answers[i], err = client.Do(r)
				if err == nil && answers[i].StatusCode != http.StatusOK {
					err = answers[i].Body.Close()
				}
				return err
			})
		}
		require.NoError(t, senders.Wait())
		for _, answer := range answers {
			codes[answer.StatusCode]++
			defer answer.Body.Close()
		}
		t.Logf("answers: %v", codes)
		return codes
	}
	t.Run("selectors of 50 KB", func(t *testing.T) {
		selector, before := strings.Repeat("a,", 25_000), v.totals(t)
		v.beside(t, served, func(t *testing.T, _ func()) {
			codes := open(t, 0, 1000, func(i int) string {
				return configMaps + "?watch=1&resourceVersion=0&labelSelector=" + selector + fmt.Sprint("x", i)
			}, http.Header{})
			require.Equal(t, 1000, codes[http.StatusBadRequest]+codes[http.StatusTooManyRequests])
			require.Greater(t, codes[http.StatusBadRequest], 250)
		})
		require.Less(t, v.totals(t).Since(before).Count("POST", "subjectaccessreviews"), 50, "the server is not asked about each")
	})
	t.Run("selectors that are allowed", func(t *testing.T) {
		values := strings.Repeat("abcdefghijklm,", 990)
		v.beside(t, served, func(t *testing.T, _ func()) {
			codes := open(t, 0, 700, func(i int) string {
				return configMaps + "?watch=1&resourceVersion=0&labelSelector=" + url.QueryEscape(fmt.Sprintf("app in (%sx%d)", values, i))
			}, http.Header{})
			require.Positive(t, codes[http.StatusTooManyRequests])
			require.Greater(t, codes[http.StatusOK], 100)
		})
	})
	t.Run("headers", func(t *testing.T) {
		v.beside(t, served, func(t *testing.T, _ func()) {
			codes := open(t, 0, 700, func(int) string { return configMaps + "?watch=1&resourceVersion=0" }, http.Header{"X": {strings.Repeat("x", 60<<10)}})
			require.Positive(t, codes[http.StatusTooManyRequests])
			require.Greater(t, codes[http.StatusOK], 100)
		})
	})
	t.Run("objects that are not read", func(t *testing.T) {
		v.beside(t, served, func(t *testing.T, _ func()) {
			codes := open(t, 64<<10, 400, func(int) string { return configMaps + "/large" }, http.Header{})
			require.Positive(t, codes[http.StatusTooManyRequests])
			require.Greater(t, codes[http.StatusOK], 5)
		})
	})
	require.Eventually(t, func() bool { return v.served().watches == 0 }, patience, pollEvery, "nothing is left behind")
}

// TestTargets: a request for anything but a path is refused at each listener, as a watch and forwarded too.
func TestTargets(t *testing.T) {
	v := newVault(t)
	v.account(t, "reader", "", readRules...)
	reader := proof{token: v.token(t, "reader", nil)}
	f := *v
	f.serve(t, v.plane, true)
	f.allowed(t, "a path", reader, secrets)
	f.allowed(t, "a URL", reader, "https://"+f.address+secrets)
	for _, target := range []string{"x:https://" + f.address + secrets, "https:" + strings.TrimPrefix(secrets, "/"), "https://" + f.address, "*", strings.TrimPrefix(secrets, "/")} {
		for _, query := range []string{"", "?watch=1&resourceVersion=0"} {
			for _, method := range []string{http.MethodGet, http.MethodOptions, http.MethodPost} {
				for _, p := range []proof{reader, {}} {
					code, body := f.send(t, p.with("User-Agent", asUser), method, target+query)
					require.Equal(t, http.StatusBadRequest, code, "%s %s: %s", method, target+query, body)
					require.False(t, f.leaks(body))
				}
			}
		}
	}
	for _, x := range f.reached(t, asUser) {
		require.NotContains(t, x, " 200 ", "none of them is forwarded")
	}
	for _, at := range []struct{ network, address string }{{"tcp", f.metrics}, {"unix", filepath.Join(f.dir, "local.sock")}} {
		for target, want := range map[string]int{"x:http://localhost/metrics": 400, "*": 400, "/metrics": 200, "http://localhost/metrics": 200} {
			c, err := net.Dial(at.network, at.address)
			require.NoError(t, err)
			_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", target)
			require.NoError(t, err)
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			require.Equal(t, want, answer.StatusCode, "%s at %s", target, at.address)
			require.NoError(t, c.Close())
		}
	}
}
