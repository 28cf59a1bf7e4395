package quota

import (
	"strconv"
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
