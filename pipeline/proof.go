package pipeline

import (
	"time"

	"github.com/snapcache/snapcache/object"
)

const (
	// silenceLimit is how long an open watch may be silent before the server is asked whether it missed
	// anything: half again as long as a kube-apiserver takes from one bookmark to the next, which is 60 to
	// 62 s. A server may send none for minutes while nothing changes, such as after its restart with etcd's
	// default interval of progress notifications. There the question costs a small request each time, and
	// the answer is the proof.
	silenceLimit = 90 * time.Second

	// aheadLimit is how long the watch may take to reach a resourceVersion that the server was seen at. A
	// change takes milliseconds. But all resources share the server's resourceVersions, so that a watch is
	// behind, and misses nothing, until its next event or bookmark.
	aheadLimit = time.Second

	// checkPause is the time between two checks, and recheckPause that while the newest one failed.
	checkPause   = 2 * time.Second
	recheckPause = 10 * time.Second
)

// proof shows that a watched collection has the server's state. An open watch counts as proof as long as
// it has given no reason for doubt; then doubt lasts until something else proves the state: the watch
// reaches the server's last known resourceVersion, or the server is asked whether the watch missed anything.
type proof struct {
	heard time.Time // newest sign of life: the begin of the watch, an event, a bookmark, a check that passed
	asked time.Time // begin of the newest check
	ahead string    // a resourceVersion of the server that the watch has not reached; "" for none
	since time.Time // when ahead was seen
	doubt error     // why the watch proves nothing; nil if it does
}

// began notes that a watch was opened. Headers alone settle no doubt.
func (p *proof) began(now time.Time) (proven bool) {
	p.heard = now
	return p.doubt == nil
}

// event notes an event or a bookmark, and reports whether it proves that the watch is alive and current.
func (p *proof) event(rv string, now time.Time) (proven bool) {
	p.heard = now
	if order, ok := object.CompareRV(rv, p.ahead); p.ahead != "" && ok && order < 0 {
		return false
	}
	p.ahead, p.doubt = "", nil
	return true
}

// seen notes that the server was at the resourceVersion newest when the collection was at rv, and
// reports whether that proves the state. An older answer proves nothing.
func (p *proof) seen(newest, rv string, now time.Time) (proven bool) {
	order, ok := object.CompareRV(newest, rv)
	switch {
	case !ok, order < 0:
		return false
	case order == 0:
		p.ahead, p.doubt = "", nil
		return true
	case p.ahead == "":
		p.ahead, p.since = newest, now
	}
	return false
}

// passed notes that the server, asked at began, had nothing that the watch missed.
func (p *proof) passed(began, now time.Time) {
	p.heard, p.doubt = now, nil
	if !p.since.After(began) {
		p.ahead = ""
	}
}

// due returns when the server has to be asked whether the watch missed anything.
func (p *proof) due() time.Time {
	if p.doubt != nil {
		return p.asked.Add(recheckPause)
	}
	due := p.heard.Add(silenceLimit)
	if soon := p.since.Add(aheadLimit); p.ahead != "" && soon.Before(due) {
		due = soon
	}
	if soonest := p.asked.Add(checkPause); due.Before(soonest) {
		return soonest
	}
	return due
}

// Seen notes that the server was at the resourceVersion newest when the collection was at rv.
func (s *Stats) Seen(newest, rv string) {
	s.update(func(c *Counters) {
		if now := s.clock.Now(); c.proof.seen(newest, rv, now) {
			c.proven(now)
		}
	})
}

// Doubt notes why an open watch proves nothing any more. It lasts until something proves the state.
func (s *Stats) Doubt(err error) {
	s.update(func(c *Counters) {
		if c.watchOpen() {
			c.doubted(err)
		}
	})
}

// CheckDue returns when the server has to be asked whether the open watch missed anything; ok is false if
// no watch is open. ahead reports that the server was seen at a resourceVersion that the watch has not
// reached.
func (s *Stats) CheckDue() (due time.Time, ahead, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c.proof.due(), s.c.proof.ahead != "", s.c.watchOpen()
}

// CheckBegan notes that the server is asked whether the watch missed anything.
func (s *Stats) CheckBegan() (began time.Time) {
	began = s.clock.Now()
	s.update(func(c *Counters) { c.proof.asked = began })
	return began
}

// CheckPassed notes that the server, asked at began, had nothing that the watch missed.
func (s *Stats) CheckPassed(began time.Time) {
	s.update(func(c *Counters) {
		c.proof.passed(began, s.clock.Now())
		c.proven(began)
	})
}

// Silent reports whether the watch has shown no sign of life since a time.
func (s *Stats) Silent(since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.c.proof.heard.After(since)
}
