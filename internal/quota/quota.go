package quota

import (
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// Quota limits how often each client may do something: to a number at once, and to a rate after that.
// It is safe for concurrent use.
type Quota struct {
	rate  rate.Limit
	burst int

	mu      sync.Mutex // held from the look at a client until it has its limiter, so that it never has two
	clients *lru.Cache // of client to *rate.Limiter
}

// New returns a quota of so many times a second after burst times at once. It remembers the given
// number of clients; one that has been forgotten has its whole burst again.
func New(perSecond float64, burst, clients int) *Quota {
	return &Quota{rate: rate.Limit(perSecond), burst: burst, clients: lru.New(clients)}
}

// Allow reports whether a client, which any comparable value identifies, may do it once more now, which is of a
// clock that is not set back, as [time.Now] is.
func (q *Quota) Allow(client any, now time.Time) bool { return q.limiter(client).AllowN(now, 1) }

// Delay returns after how long a client that was refused should come back: all get a place of their own in
// the time to come, as many a second as the quota allows, so that a fleet does not come back at once. If the
// next place is later than limit, the delay is a random one up to that.
func (q *Quota) Delay(client any, now time.Time, limit time.Duration) time.Duration {
	r := q.limiter(client).ReserveN(now, 1)
	if d := r.DelayFrom(now); d <= limit {
		return d
	}
	r.CancelAt(now)
	return rand.N(limit) //nolint:gosec // spreads load
}

func (q *Quota) limiter(client any) *rate.Limiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	x, _ := q.clients.Get(client)
	l, ok := x.(*rate.Limiter)
	if !ok {
		l = rate.NewLimiter(q.rate, q.burst)
		q.clients.Add(client, l)
	}
	return l
}
