package serving

import (
	"errors"
	"math"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// maxUnproven limits the bytes of the heads of requests whose caller is being found out, for which the server
// may have to be asked. A user of this machine, or an address, has at most as many as it leaves to others.
const maxUnproven = 16 << 20

// Authenticate returns a handler that serves requests by h, with their caller in the context. Others get
// 401 with a kube-apiserver's Status, 429, or 503 if they can't be judged yet. Health is for everybody.
func Authenticate(a *access.Authenticator, h http.Handler) http.Handler {
	unproven := quota.NewShares(maxUnproven * int64(quota.Scale()))
	callerOf := func(r *http.Request) (*access.Caller, error) {
		from, n := ownerOf(r.Context()), int64(headBytes(r))
		if !unproven.Take(from, n) {
			return nil, ErrTooLarge
		}
		defer unproven.Give(from, n)
		return a.Caller(r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if access.IsHealth(r.URL.Path) {
			h.ServeHTTP(w, r)
			return
		}
		switch caller, err := callerOf(r); {
		case err == nil:
			h.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), caller)))
		case errors.Is(err, ErrTooLarge):
			sendTooMany(w, ErrTooLarge, time.Second)
		case errors.Is(err, access.ErrTooManyTokens):
			sendTooMany(w, access.ErrTooManyTokens, time.Second)
		case errors.Is(err, access.ErrBusy):
			sendTooMany(w, access.ErrBusy, time.Second)
		case errors.Is(err, access.ErrNoKeys): // a client would throw its token away after a 401
			later := status.Later(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, access.ErrNoKeys.Error())
			status.Send(w, status.Of(later), false)
		default:
			status.Send(w, status.Of(status.Bare(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")), false)
		}
	})
}

// Local returns a handler that serves requests by h, for a caller that this machine lets in.
func Local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), &access.Caller{Local: true})))
	})
}

// sendTooMany asks the client to repeat its request after a time, at least a second.
func sendTooMany(w http.ResponseWriter, err error, after time.Duration) {
	s := status.Of(status.TooMany(err.Error()))
	s.Details.RetryAfterSeconds = max(1, int32(math.Ceil(after.Seconds())))
	status.Send(w, s, false)
}
