package serving

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
)

// asUser returns a request of a user; one that this machine lets in has no name.
func asUser(ctx context.Context, user string) *http.Request {
	c := &access.Caller{User: authenticationv1.UserInfo{Username: user}, Local: user == ""}
	return httptest.NewRequestWithContext(access.WithCaller(ctx, c), http.MethodGet, "/api/v1/pods", nil)
}

// TestUserRate: a user that sends too many requests is asked to wait; another one is served.
func TestUserRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused []error
		comeAgain := map[string]int{} // by Retry-After
		u := NewUsers(func(r *http.Request, err error) {
			require.Equal(t, "fast", access.CallerOf(r.Context()).User.Username)
			refused = append(refused, err)
		})
		h := u.Limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		served := func(user string, n int) (ok int) {
			for range n {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, asUser(t.Context(), user))
				if w.Code == http.StatusOK {
					ok++
					continue
				}
				require.Equal(t, http.StatusTooManyRequests, w.Code)
				after := w.Header().Get("Retry-After")
				comeAgain[after]++
				require.JSONEq(t, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too many requests were sent in a short time",`+
					`"reason":"TooManyRequests","details":{"retryAfterSeconds":`+after+`},"code":429}`, w.Body.String())
			}
			return ok
		}
		require.Equal(t, userBurst, served("fast", userBurst+500))
		require.Len(t, refused, 500)
		require.Equal(t, map[string]int{"1": 200, "2": 100, "3": 100, "4": 100}, comeAgain, "no more clients a second than are served")
		require.ErrorIs(t, refused[0], ErrTooFast)
		require.Equal(t, 300, served("other", 300), "requests of a kubelet's start are served")
		require.Equal(t, 10*userBurst, served("", 10*userBurst), "those of this machine are not limited")
		time.Sleep(time.Second)
		require.Equal(t, userRate, served("fast", 500))
		for i := range 3 * maxUserRate {
			served(fmt.Sprint("user ", i), 1)
		}
		require.Zero(t, u.active.Used())
	})
}

// TestUserActive: a user has half of the requests in progress, so that others have theirs, and may send more
// when some have ended.
func TestUserActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := NewUsers(nil)
		h := u.Limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		ctx, cancel := context.WithCancel(t.Context())
		for range maxActive / 2 {
			time.Sleep(10 * time.Millisecond)
			go h.ServeHTTP(httptest.NewRecorder(), asUser(ctx, "many"))
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, asUser(t.Context(), "many"))
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Contains(t, w.Body.String(), ErrTooManyNow.Error())
		ended, end := context.WithCancel(t.Context())
		end()
		w = httptest.NewRecorder()
		h.ServeHTTP(w, asUser(ended, "other"))
		require.Equal(t, http.StatusOK, w.Code)
		cancel()
		synctest.Wait()
		w = httptest.NewRecorder()
		h.ServeHTTP(w, asUser(ended, "many"))
		require.Equal(t, http.StatusOK, w.Code)
		require.Zero(t, u.active.Used())
	})
}

// TestFleetOfOneUser: a hub with the memory of the manifests takes a fleet whose agents are all one user, at
// one address, and come back at once; a user of its own is served beside it.
func TestFleetOfOneUser(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	synctest.Test(t, func(t *testing.T) {
		const agents, watches = 1000, 6
		u := NewUsers(nil)
		h := u.Limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		ctx, cancel := context.WithCancel(t.Context())
		for range agents * watches {
			go h.ServeHTTP(httptest.NewRecorder(), asUser(ctx, "fleet"))
		}
		synctest.Wait()
		require.Equal(t, agents*watches, u.active.Used())
		for range 1000 {
			go h.ServeHTTP(httptest.NewRecorder(), asUser(ctx, "other"))
		}
		synctest.Wait()
		require.Equal(t, agents*watches+1000, u.active.Used())
		cancel()
		synctest.Wait()
		require.Zero(t, u.active.Used())
	})
	var q queue
	l := newLimitedListener(&q, Connections{Max: maxConnections * quota.Scale()})
	for range 1000 {
		q = append(q, &conn{peer: "192.0.2.2", own: "192.0.2.1"})
	}
	for range 1000 {
		_, err := l.Accept()
		require.NoError(t, err)
	}
	require.Equal(t, 1000, l.remote.Used())
}
