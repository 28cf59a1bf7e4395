package pipeline

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProof: what settles a doubt, what does not, and when the server is asked.
func TestProof(t *testing.T) {
	const second = time.Second
	start := time.Unix(1_000_000, 0)
	at := start.Add
	silent := errors.New("silent")
	for _, tc := range []struct {
		name   string
		steps  func(p *proof) (proven bool) // the watch was opened at 0
		proven bool                         // by the last step
		doubt  bool
		due    time.Duration
	}{
		{"opened", func(*proof) bool { return true }, true, false, silenceLimit},
		{"an event", func(p *proof) bool { return p.event("7", at(20*second)) }, true, false, 20*second + silenceLimit},
		{"the server is where the collection is", func(p *proof) bool { return p.seen("7", "7", at(20*second)) }, true, false, silenceLimit},
		{"the server is ahead", func(p *proof) bool { return p.seen("9", "7", at(20*second)) }, false, false, 20*second + aheadLimit},
		{"it is ahead again", func(p *proof) bool {
			p.seen("9", "7", at(20*second))
			return p.seen("99", "7", at(21*second))
		}, false, false, 20*second + aheadLimit},
		{"a probe that is older than the collection", func(p *proof) bool { return p.seen("5", "7", at(20*second)) }, false, false, silenceLimit},
		{"a probe that can't be compared", func(p *proof) bool { return p.seen("x", "7", at(20*second)) }, false, false, silenceLimit},
		{"the watch reaches it", func(p *proof) bool {
			p.seen("9", "7", at(20*second))
			return p.event("9", at(21*second))
		}, true, false, 21*second + silenceLimit},
		{"the watch does not reach it", func(p *proof) bool {
			p.seen("9", "7", at(20*second))
			return p.event("8", at(20*second+aheadLimit/2))
		}, false, false, 20*second + aheadLimit},
		{"a check passes", func(p *proof) bool {
			p.seen("9", "7", at(20*second))
			p.asked = at(21 * second)
			p.passed(p.asked, at(22*second))
			return true
		}, true, false, 22*second + silenceLimit},
		{"ahead once more during the check", func(p *proof) bool {
			p.asked = at(20 * second)
			p.seen("9", "7", at(21*second))
			p.passed(p.asked, at(21*second))
			return true
		}, true, false, 22 * second},
		{"checks are not made all the time", func(p *proof) bool {
			p.asked = at(20 * second)
			p.passed(p.asked, at(20*second))
			return p.seen("9", "7", at(20*second))
		}, false, false, 20*second + checkPause},

		{"a check fails", func(p *proof) bool { p.asked, p.doubt = at(20*second), silent; return false }, false, true, 20*second + recheckPause},
		{"opened again", func(p *proof) bool { p.doubt = silent; return p.began(at(30 * second)) }, false, true, recheckPause},
		{"an event proves it", func(p *proof) bool { p.doubt = silent; return p.event("8", at(30*second)) }, true, false, 30*second + silenceLimit},
		{"an event that is not enough", func(p *proof) bool {
			p.seen("9", "7", at(20*second))
			p.doubt = silent
			return p.event("8", at(30*second))
		}, false, true, recheckPause},
		{"the server is where the collection is, after doubt", func(p *proof) bool {
			p.doubt = silent
			return p.seen("7", "7", at(30*second))
		}, true, false, silenceLimit},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := proof{asked: at(0)}
			require.True(t, p.began(at(0)))
			require.Equal(t, tc.proven, tc.steps(&p))
			require.Equal(t, tc.doubt, p.doubt != nil)
			require.Equal(t, tc.due, p.due().Sub(start))
		})
	}
}
