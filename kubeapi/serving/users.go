package serving

import (
	"errors"
	"net/http"
	"time"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
)

// Limits of the cluster's users on a node; a hub that was given more memory takes more of them, since all
// agents of a fleet may be one user. A kubelet sends some requests for each Secret and ConfigMap of its
// pods at its start, and keeps a watch on each.
const (
	userRate    = 100         // requests a second of one user
	userBurst   = 1000        // requests at once of one user, after a time without
	maxActive   = 2000        // requests in progress of all users, with watches; of one, as many as it leaves to others
	maxUserRate = 4096        // users whose rate is remembered
	maxRetry    = time.Minute // after which a user that was refused may come again

	// maxHeld limits the bytes that the requests in progress of all users hold, besides the some 30 KiB of
	// each, of which one may have as many as it leaves to others: headers, selectors, and objects that are
	// sent to a client that does not read them.
	maxHeld = 32 << 20
)

// The reasons to refuse a user's request with 429.
var (
	ErrTooFast    = errors.New("too many requests were sent in a short time")
	ErrTooManyNow = errors.New("too many requests are in progress")
	ErrTooLarge   = errors.New("the requests in progress are too large together")
)

// Users limits the requests of each user, so that none of them starves the others. It is safe for
// concurrent use. The callers that this machine lets in are one user, which has no limit but on bytes.
type Users struct {
	refused func(r *http.Request, err error) // nil for nothing
	rates   *quota.Quota
	active  *quota.Shares // of the requests in progress
	held    *quota.Shares // of their bytes
	retries *quota.Quota  // places in time for refused requests
}

// NewUsers returns the limits of all users. refused is called with each request that is refused, and the
// reason; nil for nothing.
func NewUsers(refused func(*http.Request, error)) *Users {
	scale := quota.Scale()
	perSecond := float64(userRate * scale)
	return &Users{
		refused: refused,
		rates:   quota.New(perSecond, userBurst*scale, maxUserRate),
		active:  quota.NewShares(int64(maxActive * scale)),
		held:    quota.NewShares(maxHeld * int64(scale)),
		retries: quota.New(perSecond, userRate*scale, maxUserRate),
	}
}

// Limit returns a handler that serves the requests of callers by h, within their limits. Further ones get
// 429, and are repeated by clients, one after the other. The context of a request has its [quota.Account].
func (u *Users) Limit(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := access.CallerOf(r.Context())
		if c == nil { // health
			h.ServeHTTP(w, r)
			return
		}
		user := c.User.Username
		if !c.Local {
			if err := u.begin(user); err != nil {
				u.refuse(w, r, err)
				return
			}
			defer u.active.Leave(user)
		}
		account := u.held.Open(user)
		defer account.Close()
		if !account.Hold(headBytes(r)) {
			u.refuse(w, r, ErrTooLarge)
			return
		}
		h.ServeHTTP(w, r.WithContext(quota.WithAccount(r.Context(), account)))
	})
}

func (u *Users) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if u.refused != nil {
		u.refused(r, err)
	}
	sendTooMany(w, err, u.retries.Delay(access.CallerOf(r.Context()).User.Username, time.Now(), maxRetry))
}

func (u *Users) begin(user string) error {
	switch {
	case !u.rates.Allow(user, time.Now()):
		return ErrTooFast
	case !u.active.Enter(user):
		return ErrTooManyNow
	}
	return nil
}

// headBytes returns about how much the head of a request holds: of a URL there are the parameters too, and
// the question about the caller's rights.
func headBytes(r *http.Request) int {
	n := 3 * len(r.RequestURI)
	for name, values := range r.Header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}
