package serving

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
)

// Limits of each of the cluster's users. A kubelet sends some requests for each Secret and ConfigMap of
// its pods at its start, and keeps a watch on each.
const (
	userRate    = 100  // requests a second
	userBurst   = 1000 // requests at once, after a time without
	maxActive   = 1000 // requests in progress, with watches
	maxUserRate = 4096 // users whose rate is remembered
)

// The reasons to refuse a user's request with 429.
var (
	ErrTooFast    = errors.New("too many requests were sent in a short time")
	ErrTooManyNow = errors.New("too many requests are in progress")
)

// Users limits the requests of each user, so that none of them starves the others. It is safe for
// concurrent use. The callers that this machine lets in have no limits: they are one user.
type Users struct {
	refused func(r *http.Request, err error) // nil for nothing
	rates   *quota.Quota

	mu     sync.Mutex
	active map[string]int // requests in progress, by user
}

// NewUsers returns the limits of all users. refused is called with each request that is refused, and the
// reason; nil for nothing.
func NewUsers(refused func(*http.Request, error)) *Users {
	return &Users{refused: refused, rates: quota.New(userRate, userBurst, maxUserRate), active: map[string]int{}}
}

// Limit returns a handler that serves the requests of callers by h, within their limits. Further ones get
// 429, and are repeated by clients.
func (u *Users) Limit(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := access.CallerOf(r.Context())
		if c == nil || c.Local { // health, or a user without limits
			h.ServeHTTP(w, r)
			return
		}
		if err := u.begin(c.User.Username); err != nil {
			if u.refused != nil {
				u.refused(r, err)
			}
			sendTooMany(w, err)
			return
		}
		defer u.end(c.User.Username)
		h.ServeHTTP(w, r)
	})
}

func (u *Users) begin(user string) error {
	if !u.rates.Allow(user, time.Now()) {
		return ErrTooFast
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.active[user] >= maxActive {
		return ErrTooManyNow
	}
	u.active[user]++
	return nil
}

func (u *Users) end(user string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.active[user]--; u.active[user] == 0 {
		delete(u.active, user)
	}
}
