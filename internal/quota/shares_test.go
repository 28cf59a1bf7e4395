package quota

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShares(t *testing.T) {
	s := NewShares(64)
	entered := func(client string) (n int) {
		for s.Enter(client) {
			n++
		}
		return n
	}
	require.Equal(t, 32, entered("a"), "half")
	require.Equal(t, 16, entered("b"), "half of the rest")
	require.Equal(t, 8, entered("c"))
	require.Zero(t, entered("a"))
	for range 32 {
		s.Leave("a")
	}
	require.Equal(t, 24, s.Used())
	require.Equal(t, 12, entered("b"), "more, since there is room")
	require.Equal(t, 14, entered("d"), "half of the rest")
	for i := range 100 {
		entered(fmt.Sprint(i))
	}
	require.LessOrEqual(t, s.Used(), 64)
	for client, n := range s.held {
		for range n {
			s.Leave(client)
		}
	}
	require.Zero(t, s.Used())
	require.Empty(t, s.held)

	one := NewShares(1)
	require.True(t, one.Enter("a"))
	require.False(t, one.Enter("b"))
}

func TestScale(t *testing.T) {
	for _, tc := range []struct {
		name   string
		memory int64
		want   int
	}{
		{"no limit", math.MaxInt64, 1},
		{"a small node", 40 << 20, 1},
		{"the packaged unit", 256 << 20, 2},
		{"a hub", 1 << 30, 8},
		{"a large hub", 4 << 30, 32},
		{"a machine", 1 << 50, maxScale},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, scale(tc.memory)) })
	}
	require.GreaterOrEqual(t, Scale(), 1)
}
