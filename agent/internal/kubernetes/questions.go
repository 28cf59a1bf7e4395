package kubernetes

import (
	"context"
	"sync"
	"time"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
)

const (
	// maxAsked limits the questions that the server is asked at once: strangers with many tokens must not
	// fill a thin link. Those about one client leave as many places to the others.
	maxAsked = 16

	// maxWait is how long a question waits for its place. Of the time for an answer, at least as much is
	// left then.
	maxWait = 5 * time.Second
)

// questions limits the questions to the server, and shares them among the clients that they are about. It
// is safe for concurrent use.
type questions struct {
	places *quota.Places
	wait   time.Duration // for a place, at most

	mu       sync.Mutex
	left     chan struct{} // closed when a place becomes free
	answered int           // how many questions the server has answered
}

func newQuestions() *questions {
	return &questions{places: quota.NewPlaces(maxAsked), wait: maxWait, left: make(chan struct{})}
}

// begin waits for a place for a question about a client. If there is none in time, the error is
// [access.ErrBusy], unless the server has answered no one meanwhile: then it is as good as away. After
// success, end has to follow.
func (q *questions) begin(ctx context.Context, client any) error {
	ctx, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	_, before := q.state()
	for {
		left, answered := q.state()
		switch {
		case q.places.Take(client):
			return nil
		case ctx.Err() != nil && answered != before:
			return access.ErrBusy
		case ctx.Err() != nil:
			return ctx.Err()
		}
		select {
		case <-left:
		case <-ctx.Done():
		}
	}
}

func (q *questions) state() (left <-chan struct{}, answered int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.left, q.answered
}

// end ends a question about a client; answered is set if the server did not let it wait.
func (q *questions) end(client any, answered bool) {
	q.places.Leave(client)
	q.mu.Lock()
	defer q.mu.Unlock()
	if answered {
		q.answered++
	}
	close(q.left)
	q.left = make(chan struct{})
}
