package forward

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
)

// statusOf reads the Status of an answer that is an error, which has no credential in it.
func statusOf(t *testing.T, a *http.Response) metav1.Status {
	t.Helper()
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	require.NotContains(t, string(raw), token)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	var s metav1.Status
	require.NoError(t, json.Unmarshal(raw, &s), "%s", raw)
	require.Equal(t, "Status", s.Kind)
	require.Equal(t, a.StatusCode, int(s.Code))
	require.NotEmpty(t, s.Message)
	return s
}

// TestServerClosesBeforeAnswer: a server that ends before it has answered gives an error with the
// reason. Only a request that can do something may have been done.
func TestServerClosesBeforeAnswer(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		for _, tc := range []struct {
			name, method, body string
			upgrade            bool
			code               int
		}{
			{"get", "GET", "", false, http.StatusServiceUnavailable},
			{"create", "POST", "{}", false, http.StatusBadGateway},
			{"exec", "POST", "", true, http.StatusBadGateway},
			{"exec by GET", "GET", "", true, http.StatusBadGateway},
		} {
			if tc.upgrade && protocol == "h2" {
				continue
			}
			t.Run(tc.name+" "+protocol, func(t *testing.T) {
				s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if tc.body != "" {
						_, _ = io.ReadAll(r.Body)
					}
					panic(http.ErrAbortHandler)
				}))
				send := func() *http.Response {
					r := request(t, tc.method, s.proxy.URL+"/x", strings.NewReader(tc.body))
					if tc.upgrade {
						r.Header.Set("Connection", "Upgrade")
						r.Header.Set("Upgrade", "SPDY/3.1")
					}
					a, err := client(t, s.proxy, protocol).Do(r)
					require.NoError(t, err)
					return a
				}
				a := send()
				got := statusOf(t, a)
				require.Equal(t, tc.code, a.StatusCode)
				require.Empty(t, a.Header.Get("Retry-After"))
				require.Equal(t, tc.code == http.StatusBadGateway, strings.Contains(got.Message, "it may have done"))
				s.closeIdle()
				s.upstream.Close()
				a = send()
				got = statusOf(t, a)
				require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
				require.Equal(t, metav1.StatusReasonServiceUnavailable, got.Reason)
				require.Empty(t, a.Header.Get("Retry-After"), "client-go would repeat it for nothing")
				require.NotContains(t, s.log.String(), token)
				require.Contains(t, s.log.String(), "could not be forwarded")
			})
		}
	}
}

// TestServerClosesDuringAnswer: an answer that the server does not finish is cut, whether its length was
// known or not, and so is a stream.
func TestServerClosesDuringAnswer(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		for _, length := range []string{"", "1000"} {
			t.Run(protocol+" "+length, func(t *testing.T) {
				s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if length != "" {
						w.Header().Set("Content-Length", length)
					}
					_, _ = io.WriteString(w, "part")
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}))
				a, err := client(t, s.proxy, protocol).Do(request(t, http.MethodGet, s.proxy.URL+"/x", nil))
				require.NoError(t, err)
				defer a.Body.Close()
				raw, err := io.ReadAll(a.Body)
				require.Error(t, err, "%q looks whole", raw)
				require.Equal(t, "part", string(raw))
			})
		}
	}
	t.Run("stream", func(t *testing.T) {
		cut := make(chan net.Conn, 1)
		s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, buffer, _ := http.NewResponseController(w).Hijack()
			_, _ = buffer.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v5\r\n\r\nhello ")
			_ = buffer.Flush()
			cut <- conn
		}))
		_, buffer := upgrade(t, s, "POST", "SPDY/3.1")
		require.NoError(t, (<-cut).Close())
		_, err := buffer.ReadByte()
		require.Error(t, err)
	})
}

// TestSilentServer: a server that takes requests and sends nothing. A request that changes nothing is refused once the
// wait for it is given up, another one may have been done, and has a longer grace.
func TestSilentServer(t *testing.T) {
	for _, tc := range []struct {
		method  string
		grace   time.Duration
		code    int
		message string
	}{
		{"GET", 0, http.StatusServiceUnavailable, "can't be reached"},
		{"HEAD", 0, http.StatusServiceUnavailable, ""},
		{"POST", changeGrace, http.StatusBadGateway, "it may have done"},
		{"DELETE", changeGrace, http.StatusBadGateway, "it may have done"},
	} {
		for _, protocol := range []string{"h2", "http/1.1"} {
			t.Run(tc.method+" "+protocol, func(t *testing.T) {
				asked, giveUp := make(chan struct{}), context.CancelCauseFunc(nil)
				var errs []error
				s := newSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					close(asked)
					<-r.Context().Done()
				}), func(o *Options) {
					o.Await = func(ctx context.Context, grace time.Duration) (context.Context, func(error)) {
						require.Equal(t, tc.grace, grace)
						ctx, giveUp = context.WithCancelCause(ctx)
						return ctx, func(err error) { errs = append(errs, err) }
					}
				})
				go func() { <-asked; giveUp(errors.New("silent")) }()
				a, err := client(t, s.proxy, protocol).Do(request(t, tc.method, s.proxy.URL+"/x", nil))
				require.NoError(t, err)
				require.Equal(t, tc.code, a.StatusCode)
				require.Empty(t, a.Header.Get("Retry-After"))
				if tc.message != "" {
					require.Contains(t, statusOf(t, a).Message, tc.message)
				}
				require.NotNil(t, errs[0], "no answer began")
			})
		}
	}
}

// TestAnswerBegins: the wait for an answer ends when it begins, however long it goes on.
func TestAnswerBegins(t *testing.T) {
	answered := make(chan error, 10)
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), func(o *Options) {
		o.Await = func(ctx context.Context, _ time.Duration) (context.Context, func(error)) {
			return ctx, func(err error) { answered <- err }
		}
	})
	a, err := client(t, s.proxy, "h2").Do(request(t, http.MethodGet, s.proxy.URL+"/x", nil))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(answered) == 1 }, 10*time.Second, time.Millisecond)
	require.NoError(t, <-answered)
	require.NoError(t, a.Body.Close())
	require.ErrorIs(t, <-answered, context.Canceled)
}

// TestDisconnected: without the server everything is refused at once, and nothing is sent.
func TestDisconnected(t *testing.T) {
	s := newSite(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	s.offline.Store(true)
	for _, protocol := range []string{"h2", "http/1.1"} {
		for _, method := range []string{"GET", "POST", "PATCH", "DELETE"} {
			began := time.Now()
			a, err := client(t, s.proxy, protocol).Do(request(t, method, s.proxy.URL+"/x", nil))
			require.NoError(t, err)
			got := statusOf(t, a)
			require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
			require.Equal(t, metav1.StatusReasonServiceUnavailable, got.Reason)
			require.Empty(t, a.Header.Get("Retry-After"), "client-go would repeat it for nothing")
			require.Less(t, time.Since(began), 5*time.Second)
		}
	}
	require.False(t, s.Reaches(requestOf(t, s)))
	require.True(t, s.Takes(requestOf(t, s)))
}

// TestNotConnectedYet: before the server is known, requests are refused as without it.
func TestNotConnectedYet(t *testing.T) {
	s := newSite(t, http.NotFoundHandler())
	s.closeIdle()
	before := s.server.Swap(nil)
	a, err := client(t, s.proxy, "h2").Do(request(t, "POST", s.proxy.URL+"/x", nil))
	require.NoError(t, err)
	statusOf(t, a)
	require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
	s.server.Store(before)
}

// requestOf returns a request of the site's caller, as a handler gets it.
func requestOf(t *testing.T, s *site) *http.Request {
	r := request(t, http.MethodGet, s.proxy.URL+"/x", nil)
	return r.WithContext(access.WithCaller(r.Context(), s.caller.Load()))
}

// TestLocalCaller: a caller that has no credentials of the cluster is not taken, and nothing is sent for
// it even if it is.
func TestLocalCaller(t *testing.T) {
	s := newSite(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	for _, c := range []*access.Caller{nil, {Local: true}, {Local: true, Certificate: true}} {
		s.caller.Store(c)
		require.False(t, s.Takes(requestOf(t, s)))
		require.False(t, s.Reaches(requestOf(t, s)))
		a, err := client(t, s.proxy, "h2").Do(request(t, "POST", s.proxy.URL+"/x", nil))
		require.NoError(t, err)
		statusOf(t, a)
		require.Equal(t, http.StatusForbidden, a.StatusCode)
	}
}

// TestHeaders: a client can't describe itself as a proxy describes its clients, nor drop what identifies
// it.
func TestHeaders(t *testing.T) {
	var got http.Header
	var host string
	s := newSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, host = r.Header, r.Host }))
	r := request(t, "GET", s.proxy.URL+"/x", nil)
	r.Host = "elsewhere.example.com"
	for _, name := range []string{"X-Remote-User", "x-remote-group", "X-Remote-Extra-Scopes", "X-Remote-Uid", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Uri", "X-Real-Ip", "Forwarded"} {
		r.Header.Set(name, "system:masters")
	}
	r.Header.Set("Connection", "Authorization")
	a, err := client(t, s.proxy, "http/1.1").Do(r)
	require.NoError(t, err)
	require.NoError(t, a.Body.Close())
	for name := range got {
		require.False(t, vouches(name), name)
	}
	require.Equal(t, []string{"Bearer " + token}, got["Authorization"])
	require.Equal(t, strings.TrimPrefix(s.upstream.URL, "https://"), host)
}

// TestLimits: a user that has many requests gets 429 for more of them, while another one gets through,
// and its own places are free again. Upgrades have places of their own.
func TestLimits(t *testing.T) {
	release := make(chan struct{})
	began := make(chan struct{}, 10)
	s := newSite(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-release
	}))
	s.requests, s.upgrades = quota.NewShares(4), quota.NewShares(2)
	c := client(t, s.proxy, "http/1.1")
	type answer struct {
		code  int
		retry string
		body  []byte
	}
	var held []chan answer
	send := func(user string, upgrade bool) *answer { // nil if it is forwarded
		s.caller.Store(&access.Caller{User: authenticationv1.UserInfo{Username: user}})
		r := request(t, "GET", s.proxy.URL+"/x", nil)
		if upgrade {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "SPDY/3.1")
		}
		answers := make(chan answer, 1)
		go func() {
			defer close(answers)
			a, err := c.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Body.Close()
			body, err := io.ReadAll(a.Body)
			if err != nil {
				t.Error(err)
			}
			answers <- answer{a.StatusCode, a.Header.Get("Retry-After"), body}
		}()
		select {
		case <-began:
			held = append(held, answers)
			return nil
		case a := <-answers:
			return &a
		}
	}
	hold := func(user string, upgrade bool) { require.Nil(t, send(user, upgrade)) }
	refused := func(user string, upgrade bool) {
		t.Helper()
		a := send(user, upgrade)
		require.NotNil(t, a, "forwarded")
		require.Equal(t, http.StatusTooManyRequests, a.code)
		require.Equal(t, "1", a.retry)
		var got metav1.Status
		require.NoError(t, json.Unmarshal(a.body, &got))
		require.Equal(t, metav1.StatusReasonTooManyRequests, got.Reason)
	}
	finish := sync.OnceFunc(func() { close(release) })
	defer finish()
	hold("greedy", false)
	hold("greedy", false)
	hold("greedy", true)
	for range 10 {
		refused("greedy", false)
		refused("greedy", true)
	}
	hold("other", false)
	hold("other", true)
	refused("other", true) // none is left
	finish()
	for _, answers := range held {
		require.Equal(t, http.StatusOK, (<-answers).code)
	}
	require.Eventually(t, func() bool { return s.upgrades.Enter("greedy") }, time.Minute, time.Millisecond, "its place is free again")
}

// TestEarlyAnswer: an answer to a request whose body the server does not want comes at once, though the
// client does not send the rest.
func TestEarlyAnswer(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, "no")
			}))
			from, to := io.Pipe()
			go func() { _, _ = io.WriteString(to, "first") }()
			defer to.Close()
			began := time.Now()
			a, err := client(t, s.proxy, protocol).Do(request(t, http.MethodPost, s.proxy.URL+"/x", from))
			require.NoError(t, err)
			raw, err := io.ReadAll(a.Body)
			require.NoError(t, err)
			require.NoError(t, a.Body.Close())
			require.Equal(t, http.StatusForbidden, a.StatusCode)
			require.Equal(t, "no", string(raw))
			require.Less(t, time.Since(began), stall/2)
		})
	}
}
