package kubeapi

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// many is how many requests a client sends that wants to exhaust the agent.
const many = 20_000

// TestExhaustion: a client that sends many tokens, and users that ask for many things, or keep many
// watches, make neither the agent large nor the kube-apiserver busy, and are in no one's way.
func TestExhaustion(t *testing.T) {
	v := newVault(t)
	v.account(t, "limited", mine, readRules...)
	v.account(t, "reader", "", readRules...)
	v.account(t, "third", "", readRules...)
	v.account(t, "watching", mine, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"watch"}})
	third := proof{token: v.token(t, "third", nil)}
	v.allowed(t, "third", third, secrets)
	before := v.residentBytes(t)
	ctx := t.Context()

	t.Run("tokens", func(t *testing.T) {
		began, asked := time.Now(), v.totals(t)
		likeReal := forged(t, third.token, nil, map[string]any{"jti": "x"}, newSigner(t))
		codes := v.flood(t, many, func(i int) (string, string) {
			if i%2 == 0 {
				return secrets, rand.Text() + strings.Repeat("x", i%4000)
			}
			return secrets, likeReal[:len(likeReal)-40] + base64.RawURLEncoding.EncodeToString([]byte(rand.Text()))[:20]
		}, third)
		t.Logf("answers: %v, in %v", codes, time.Since(began))
		require.Equal(t, many, codes[http.StatusUnauthorized]+codes[http.StatusTooManyRequests])
		reviews := v.totals(t).Since(asked).Count("POST", "tokenreviews")
		t.Logf("%d reviews of tokens", reviews)
		require.LessOrEqual(t, reviews, 100+6*int(time.Since(began).Seconds()+1))
		require.GreaterOrEqual(t, reviews, 50, "the control: unknown tokens are reviewed")
		v.allowed(t, "a token that comes only now", proof{token: v.token(t, "third", nil)}, secrets)
	})
	t.Run("decisions", func(t *testing.T) {
		began, asked := time.Now(), v.totals(t)
		tokens := []string{v.token(t, "limited", nil), v.token(t, "reader", nil)}
		codes := v.flood(t, many, func(i int) (string, string) {
			return fmt.Sprintf("/api/v1/namespaces/%s/configmaps/%s-%d", other, strings.Repeat("n", i%200), i), tokens[i%2]
		}, third)
		t.Logf("answers: %v, in %v", codes, time.Since(began))
		served := codes[http.StatusForbidden] + codes[http.StatusNotFound]
		require.Equal(t, many, served+codes[http.StatusTooManyRequests])
		require.LessOrEqual(t, served, 2*(1000+101*int(time.Since(began).Seconds()+1)))
		require.GreaterOrEqual(t, served, 2000)
		reviews := v.totals(t).Since(asked).Count("POST", "subjectaccessreviews")
		t.Logf("%d reviews of access", reviews)
		require.LessOrEqual(t, reviews, served+100)
	})
	t.Run("watches", func(t *testing.T) {
		token := v.token(t, "watching", nil)
		var opened []io.Closer
		client := v.client(t)
		refused := 0
		for range 1100 { // after the first burst, 100 a second
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+v.address+"/api/v1/namespaces/"+mine+"/configmaps?watch=1&resourceVersion=0", nil)
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			answer, err := client.Do(r)
			require.NoError(t, err)
			opened = append(opened, answer.Body)
			if answer.StatusCode == http.StatusTooManyRequests {
				refused++
			} else {
				require.Equal(t, http.StatusOK, answer.StatusCode)
			}
		}
		t.Logf("%d of 1100 watches are refused", refused)
		require.GreaterOrEqual(t, refused, 100)
		v.allowed(t, "another user", third, secrets+"?watch=1&timeoutSeconds=1&resourceVersion=0")
		for _, c := range opened {
			require.NoError(t, c.Close())
		}
	})
	after := v.residentBytes(t)
	t.Logf("the agent has %d MiB, and had %d MiB", after>>20, before>>20)
	require.Less(t, after-before, int64(96<<20))
}

// client returns a client without credentials.
func (v *vault) client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: v.tls.Clone(), ForceAttemptHTTP2: true} // it changes its configuration
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// flood sends n requests with the path and the token that ask returns, and returns how many answers have
// which code. Beside them another client is served.
func (v *vault) flood(t *testing.T, n int, ask func(i int) (path, token string), beside proof) map[int]int {
	t.Helper()
	var mu sync.Mutex
	codes, errs := map[int]int{}, []error(nil)
	next := make(chan int)
	var senders sync.WaitGroup
	for range 16 {
		senders.Go(func() {
			own := map[int]int{}
			client := v.client(t)
			for i := range next {
				path, token := ask(i)
				code, err := send(client, "https://"+v.address+path, token)
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
				own[code]++
			}
			mu.Lock()
			defer mu.Unlock()
			for code, n := range own {
				codes[code] += n
			}
		})
	}
	for i := range n {
		next <- i
		if i%1000 == 999 {
			began := time.Now()
			code, body := v.send(t, beside, http.MethodGet, secrets)
			require.Equal(t, http.StatusOK, code, body)
			require.Less(t, time.Since(began), 10*time.Second)
		}
	}
	close(next)
	senders.Wait()
	require.Empty(t, errs)
	return maps.Clone(codes)
}

func send(client *http.Client, url, token string) (code int, err error) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

func (v *vault) totals(t *testing.T) controlplane.Totals {
	t.Helper()
	totals, err := v.RequestTotals(t.Context())
	require.NoError(t, err)
	return totals
}

// residentBytes returns how much memory the agent has.
func (v *vault) residentBytes(t *testing.T) int64 {
	t.Helper()
	raw := harness.ReadFile(t, fmt.Sprintf("/proc/%d/status", v.agent.Cmd.Process.Pid))
	_, rest, found := strings.Cut(string(raw), "VmRSS:")
	require.True(t, found)
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	require.NoError(t, err)
	return n << 10
}

// TestNodeAddress: with access, the agent listens on one address of this machine that is not on loopback,
// and on no other; its certificate names it.
func TestNodeAddress(t *testing.T) {
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	host := ""
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			host = p.Addr().String()
			break
		}
	}
	if host == "" {
		t.Skip("this machine has no address but on loopback")
	}
	users := newUsers(t, "node-address", 2)
	_, port, err := net.SplitHostPort(harness.FreeAddress(t))
	require.NoError(t, err)
	s := newSiteOf(t, shared.plane, accessResources(false), func(s *site) {
		s.access, s.address = true, net.JoinHostPort(host, port)
	})
	require.NoError(t, s.agent.await(t.Context(), s.resources), "with the agent's own token, from this machine")
	code, body := users[1].at(t, restConfig(t, s.cached)).get(t, "/api/v1/namespaces/ns/pods")
	require.Equal(t, http.StatusOK, code, body)
	code, body = users[0].at(t, restConfig(t, s.cached)).get(t, "/api/v1/namespaces/ns/pods")
	require.Equal(t, http.StatusForbidden, code, body)
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(restConfig(t, s.cached)))
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	health, err := client.Get("https://" + s.address + "/readyz")
	require.NoError(t, err)
	require.NoError(t, health.Body.Close())
	require.Equal(t, http.StatusOK, health.StatusCode)
	for _, elsewhere := range []string{"127.0.0.1", "::1"} {
		_, err := net.DialTimeout("tcp", net.JoinHostPort(elsewhere, port), time.Second)
		require.Error(t, err)
	}
}
