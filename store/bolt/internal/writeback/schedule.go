package writeback

import "time"

const (
	// flushBytes is how many bytes may be dirty before a flush that does not wait for the interval.
	flushBytes = 1 << 20

	// maxUnflushedBytes is how many bytes may be dirty while the file can't be written. Beyond
	// that, changes are refused.
	maxUnflushedBytes = 16 << 20

	// An append to the journal writes at least about five pages, so a few large flushes cost less
	// flash than many small ones.
	//
	// minBatchBytes is how many bytes have to be dirty for a flush after one flush interval: with
	// so many, the overhead of an append is a tenth. A smaller batch waits maxBatchDelay intervals.
	minBatchBytes = 256 << 10
	maxBatchDelay = 12

	// maxChangeDelay bounds the delay of a batch with changes, unless the flush interval is longer.
	// The apiserver keeps about 75 s of changes: a process that is killed and restarts at once
	// gets its unflushed changes from them; otherwise it has to list.
	maxChangeDelay = time.Minute

	// A flush that failed is tried again after firstRetry, then after twice as long each time
	// up to maxRetry.
	firstRetry = time.Second
	maxRetry   = time.Minute
)

// schedule decides when a flush is due. It is pure: it has no timer and no clock.
type schedule struct {
	interval time.Duration // the flush interval
	bytes    int           // dirty bytes
	since    time.Time     // when the oldest dirty change came; zero if everything is durable
	changes  bool          // there are dirty changes besides checkpoints

	retryIn time.Duration // wait before the next try of a failed flush
	retryAt time.Time     // time of the next try; zero unless the newest flush failed
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

// again undoes flushed: the changes from before it are dirty again.
func (s *schedule) again(before schedule) {
	s.bytes += before.bytes
	s.changes = s.changes || before.changes
	if !before.since.IsZero() {
		s.since = before.since
	}
}

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

// pressure reports the conditions for more changes: if flush is true, a flush has to come first; if full
// is true, changes are refused unless the newest flush was successful.
func (s *schedule) pressure(now time.Time) (full, flush bool) {
	if s.bytes >= maxUnflushedBytes {
		return true, !now.Before(s.retryAt)
	}
	return false, s.bytes >= flushBytes && s.retryAt.IsZero()
}
