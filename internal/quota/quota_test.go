package quota

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuota(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := New(2, 10, 3)
	allowed := func(client string) (n int) {
		for q.Allow(client, now) {
			n++
		}
		return n
	}
	require.Equal(t, 10, allowed("a"))
	require.Equal(t, 10, allowed("b"), "another client has its own")
	now = now.Add(3 * time.Second)
	require.Equal(t, 6, allowed("a"))
	now = now.Add(24 * time.Hour)
	require.Equal(t, 10, allowed("a"))
	for i := range 100 {
		q.Allow(strconv.Itoa(i), now)
	}
	require.Equal(t, 3, q.clients.Len(), "the number of clients is bounded")
}

// TestQuota_AtOnce: a client whose first requests come at the same time has one burst, too.
func TestQuota_AtOnce(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	const clients, burst, asking = 2000, 4, 8
	q := New(1, burst, clients)
	allowed := make([]atomic.Int32, clients)
	var all sync.WaitGroup
	for range asking {
		all.Go(func() {
			for i := range clients {
				if q.Allow(i, now) {
					allowed[i].Add(1)
				}
			}
		})
	}
	all.Wait()
	for i := range allowed {
		require.EqualValues(t, burst, allowed[i].Load(), "client %d", i)
	}
}

// TestDelay: a fleet that is refused comes back one after the other.
func TestDelay(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := New(50, 50, 3)
	const limit = time.Minute
	perSecond := map[int]int{}
	for range 2050 {
		perSecond[int(math.Ceil(q.Delay("fleet", now, limit).Seconds()))]++
	}
	require.Equal(t, 50, perSecond[0])
	for second := 1; second <= 40; second++ {
		require.InDelta(t, 50, perSecond[second], 1, second)
	}
	require.Zero(t, q.Delay("other", now, limit))
	require.Equal(t, 40*time.Second, q.Delay("fleet", now.Add(20*time.Millisecond), limit).Round(time.Second))

	most, seconds := time.Duration(0), map[int]bool{}
	for range 10_000 {
		d := q.Delay("fleet", now, limit)
		most, seconds[int(d.Seconds())] = max(most, d), true
	}
	require.LessOrEqual(t, most, limit)
	require.Greater(t, len(seconds), 55, "those for whom there is no place any more are spread too")
	require.Zero(t, q.Delay("fleet", now.Add(2*limit), limit), "later there is")
}
