package quota

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlaces(t *testing.T) {
	p := NewPlaces(100)
	take := func(client string) (n int) {
		for p.Take(client) {
			n++
		}
		return n
	}
	require.Equal(t, 50, take("a"))
	require.Equal(t, 25, take("b"), "the first has not taken all")
	require.Zero(t, take("a"), "and gets no more")
	require.Equal(t, 13, take("c"))
	p.Leave("b")
	require.Zero(t, take("b"), "it has more than its part")
	require.Equal(t, 7, take("d"))
	for _, x := range []struct {
		client string
		n      int
	}{{"a", 50}, {"b", 24}, {"c", 13}, {"d", 7}} {
		for range x.n {
			p.Leave(x.client)
		}
	}
	require.Empty(t, p.of)
	require.Equal(t, 50, take("c"), "all are free again")

	one := NewPlaces(1)
	require.True(t, one.Take("a"))
	require.False(t, one.Take("b"))
}
