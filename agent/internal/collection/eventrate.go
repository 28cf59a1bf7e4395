package collection

import "time"

// minutesKept is how far back events are counted by the minute: an hour.
const minutesKept = 60

// eventRate counts events by the minute. Minutes count from the start of the agent, so that setting
// the clock does not move them.
type eventRate struct {
	counts [minutesKept]int64
	newest int64 // the last minute that has a count
}

// add counts an event.
func (r *eventRate) add(passed time.Duration) {
	r.advance(passed)
	r.counts[r.newest%minutesKept]++
}

// last returns the counts of the last hour, the oldest minute first. The last count is that of the
// current minute.
func (r *eventRate) last(passed time.Duration) []int64 {
	r.advance(passed)
	all := make([]int64, minutesKept)
	for i := range all {
		all[i] = r.counts[(r.newest+1+int64(i))%minutesKept]
	}
	return all
}

// advance forgets the minutes that ended more than an hour ago.
func (r *eventRate) advance(passed time.Duration) {
	now := int64(passed / time.Minute)
	for r.newest = max(r.newest, now-minutesKept); r.newest < now; {
		r.newest++
		r.counts[r.newest%minutesKept] = 0
	}
}
