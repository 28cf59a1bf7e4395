package kubeapi

import (
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/snapcache/snapcache/internal/quota"
	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// Limits of a [Server], so that its memory, and the disk space of its spools, are bounded. Requests
// that exceed them get 429, after which client-go repeats them.
const (
	// maxRequests limits the requests for resources, with watches, that are answered at once, on a
	// node. A hub that was given more memory takes more of them.
	maxRequests = 4000

	// maxWatches limits the watches, each of which takes some 30 KiB, in the same way. A kubelet has one
	// for each Secret and ConfigMap of its pods.
	maxWatches = 2000

	// listSeats limits the lists, and the initial objects of watches, that are sent at once: large ones
	// take several seats. A spool has at most 1 MiB in memory, and seatBytes on disk
	// for each of its seats, unless it has the most seats.
	listSeats = 64
	seatBytes = 16 << 20
	maxWidth  = listSeats / 4

	// maxWaiting limits the lists that wait for a seat.
	maxWaiting = 1000

	// replaySeats limits the watches that continue from the stored history at once. They have seats of
	// their own, so that no list delays them, and the others wait: a client that has an open watch does
	// not come again.
	replaySeats = 32

	// retryRate is how many of the refused requests should come again each second, and retryLimit the
	// longest time that they are asked to wait.
	retryRate  = 50
	retryLimit = time.Minute
)

// refuse counts a request that is over a limit, and returns its answer: it should come again after the
// requests that were refused before it.
func (s *Server) refuse(why Refusal, message string) error {
	s.opts.Metrics.Refused(why)
	err := status.TooMany(message)
	d := s.retries.Delay(struct{}{}, s.opts.Clock.Now(), retryLimit)
	err.ErrStatus.Details.RetryAfterSeconds = int32(max(1, math.Ceil(d.Seconds())))
	return err
}

// hold counts bytes that a request holds until it ends, see [quota.Account].
func (s *Server) hold(r *request, bytes int) error {
	if quota.AccountOf(r.Context()).Hold(bytes) {
		return nil
	}
	return s.refuse(RefusedBytes, "the requests in progress are too large together")
}

// writeLimit is how long a client may take to accept the bytes of one write, before its request is cut.
// With each part that it accepts the time begins again.
const writeLimit = 30 * time.Second

// impatient writes an answer with writeLimit. The deadline stays after the last write, for the remaining
// writes of net/http.
type impatient struct {
	w    io.Writer
	http *http.ResponseController
}

// Write implements io.Writer. Not every writer has deadlines: in tests some have none.
func (i impatient) Write(p []byte) (int, error) {
	_ = i.http.SetWriteDeadline(time.Now().Add(writeLimit))
	return i.w.Write(p)
}

// watchdog cuts the answer of a watch if its client accepts no written bytes for writeLimit.
// Over HTTP/2 a deadline for each write would cost as much as the write, and one that stays would end
// a stream that is idle.
type watchdog struct {
	http  *http.ResponseController
	timer *time.Timer

	mu    sync.Mutex
	began time.Time // of the write in progress; zero for none
}

func newWatchdog(w http.ResponseWriter) *watchdog {
	d := &watchdog{http: http.NewResponseController(w)}
	d.timer = time.AfterFunc(writeLimit, d.cut)
	d.timer.Stop()
	return d
}

// begin removes the deadline of the answer. Not every writer has deadlines: in tests some have none.
func (d *watchdog) begin() { _ = d.http.SetWriteDeadline(time.Time{}) }

// end sets a deadline for the end of the answer, which net/http writes.
func (d *watchdog) end() { _ = d.http.SetWriteDeadline(time.Now().Add(writeLimit)) }

// watch guards a write.
func (d *watchdog) watch(write func() error) error {
	d.set(time.Now())
	d.timer.Reset(writeLimit)
	defer func() {
		d.timer.Stop()
		d.set(time.Time{}) // the answer must not be used by cut once it has ended
	}()
	return write()
}

func (d *watchdog) set(began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began = began
}

// cut ends the write in progress, if it is still the one that the timer is for.
func (d *watchdog) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.began.IsZero() && time.Since(d.began) >= writeLimit {
		_ = d.http.SetWriteDeadline(d.began) // it has passed
	}
}
