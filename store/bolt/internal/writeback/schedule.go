package writeback

import "time"

const (
	// flushBytes is how much may wait for the flush interval to pass.
	flushBytes = 1 << 20

	// maxUnflushedBytes is how much may wait in memory while the file can't be written.
	// Past that the writer has to wait.
	maxUnflushedBytes = 16 << 20

	// An append to the journal costs some five pages however little it carries, so a flush
	// that carries more costs less flash.
	//
	// minBatchBytes is how much has to wait for a flush to come as soon as the flush interval
	// has passed: with so much, what an append costs besides is a tenth. A smaller batch
	// waits maxBatchDelay intervals.
	minBatchBytes = 256 << 10
	maxBatchDelay = 12

	// maxChangeDelay bounds the delay of a batch with changes, unless the flush interval is
	// longer. The apiserver remembers some 75 s of changes: a process that is killed and comes
	// back at once has to find there what it had not flushed, or it has to list.
	maxChangeDelay = time.Minute

	// A flush that failed is tried again after firstRetry, then after twice as long each time
	// up to maxRetry.
	firstRetry = time.Second
	maxRetry   = time.Minute
)

// schedule decides when a flush is due. It is pure: it has no timer and no clock.
type schedule struct {
	interval time.Duration // the flush interval
	bytes    int           // that are not durable
	since    time.Time     // when the oldest of them came; zero if everything is durable
	changes  bool          // they are more than checkpoints

	retryIn time.Duration // between the two newest tries of a flush that fails
	retryAt time.Time     // of the next try; zero unless the newest flush failed
}

// add records that n more bytes are not durable; n is negative if cells became smaller.
func (s *schedule) add(now time.Time, n int, changes bool) {
	s.bytes += n
	if s.since.IsZero() {
		s.since = now
	}
	if changes && !s.changes {
		s.changes = true
		s.since = now // checkpoints that waited for a batch are part of one now
	}
}

// flushed records that everything is durable.
func (s *schedule) flushed() { s.bytes, s.since, s.changes = 0, time.Time{}, false }

// succeeded and failed record how the newest flush ended.
func (s *schedule) succeeded() { s.retryIn, s.retryAt = 0, time.Time{} }

func (s *schedule) failed(now time.Time) {
	s.retryIn = min(max(2*s.retryIn, firstRetry), maxRetry)
	s.retryAt = now.Add(s.retryIn)
}

// due returns when to flush; ok is false if there is nothing to flush.
func (s *schedule) due() (at time.Time, ok bool) {
	if !s.retryAt.IsZero() {
		return s.retryAt, true
	}
	if s.since.IsZero() {
		return time.Time{}, false
	}
	wait := s.interval
	switch {
	case !s.changes:
		wait *= maxBatchDelay // freshness alone is not worth a write
	case s.bytes < minBatchBytes:
		wait = max(wait, min(wait*maxBatchDelay, maxChangeDelay))
	}
	return s.since.Add(wait), true
}

// pressure is what has to happen before more may be applied.
type pressure int

const (
	noPressure  pressure = iota
	shouldFlush          // if that fails it is tried again later
	mustFlush            // unless that succeeds there is no room for more
	mustWait             // it was tried a moment ago
)

func (s *schedule) pressure(now time.Time) pressure {
	switch {
	case s.bytes >= maxUnflushedBytes && now.Before(s.retryAt):
		return mustWait
	case s.bytes >= maxUnflushedBytes:
		return mustFlush
	case s.bytes >= flushBytes && s.retryAt.IsZero():
		return shouldFlush
	}
	return noPressure
}
