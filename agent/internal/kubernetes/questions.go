package kubernetes

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/seats"
)

const (
	// maxAsked limits the questions that the server is asked at once: strangers with many tokens must not
	// fill a thin link. Questions about one client leave as many places to the others.
	maxAsked = 16

	// maxWait is how long a question waits for its place. Of the time for an answer, at least as much is
	// left then.
	maxWait = 5 * time.Second
)

// questions limits the questions to the server, and shares them among the clients that they are about. It
// is safe for concurrent use.
type questions struct {
	seats    *seats.Seats
	wait     time.Duration // for a place, at most
	asked    atomic.Int64
	answered atomic.Int64 // how many questions the server has answered
}

func newQuestions() *questions { return &questions{seats: seats.New(maxAsked, 0), wait: maxWait} }

// begin waits for a place for a question about a client. If there is none in time, the error is
// [access.ErrBusy], unless the server has answered no one meanwhile: then it is as good as away. After
// success, end has to follow.
func (q *questions) begin(ctx context.Context, client any) (*seats.Seat, error) {
	ctx, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	before := q.answered.Load()
	// A connection for each, since one connection gets fewer seats than its user.
	about := seats.Client{User: fmt.Sprintf("%T %v", client, client), Connection: fmt.Sprint(q.asked.Add(1))}
	seat, err := q.seats.Take(ctx, about, 1, false, nil)
	if err != nil && q.answered.Load() != before {
		err = access.ErrBusy
	}
	return seat, err
}

// end ends a question; answered is set if the server did not let it wait.
func (q *questions) end(seat *seats.Seat, answered bool) {
	if answered {
		q.answered.Add(1)
	}
	seat.Leave()
}
