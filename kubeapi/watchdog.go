package kubeapi

import (
	"net/http"
	"sync"
	"time"
)

// watchdog cuts the answer of a watch if its client does not accept for writeLimit what is written.
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

// begin removes the deadline of the answer. Not every writer has deadlines: those of tests have none.
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
