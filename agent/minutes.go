package agent

import "time"

// minutesKept is how far back events are counted by the minute: an hour.
const minutesKept = 60

// minutes counts events by the minute. What it counts by is the time that has passed since
// the agent was started, so that a clock that is set moves nothing.
type minutes struct {
	counts [minutesKept]int64
	newest int64 // the minute that was looked at last
}

// add counts an event.
func (m *minutes) add(passed time.Duration) {
	m.turn(passed)
	m.counts[m.newest%minutesKept]++
}

// last returns the counts of the last hour, the oldest minute first. The last of them is
// the minute under way.
func (m *minutes) last(passed time.Duration) []int64 {
	m.turn(passed)
	all := make([]int64, minutesKept)
	for i := range all {
		all[i] = m.counts[(m.newest+1+int64(i))%minutesKept]
	}
	return all
}

// turn forgets the minutes that are over for more than an hour.
func (m *minutes) turn(passed time.Duration) {
	now := int64(passed / time.Minute)
	for skipped := 0; m.newest < now; skipped++ {
		if skipped == minutesKept {
			m.newest = now
			return
		}
		m.newest++
		m.counts[m.newest%minutesKept] = 0
	}
}
