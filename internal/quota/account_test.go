package quota

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAccount: the requests of a client hold at most as many bytes as they leave to others, and none when
// they have ended.
func TestAccount(t *testing.T) {
	s := NewShares(1000)
	a, b := s.Open("a"), s.Open("a")
	require.True(t, a.Hold(300))
	require.True(t, b.Hold(200))
	require.False(t, a.Hold(1))
	other := s.Open("b")
	require.True(t, other.Hold(250))
	require.False(t, other.Hold(1))
	a.Free(100)
	require.True(t, other.Hold(50))
	a.Close()
	require.Equal(t, 500, s.Used())
	require.True(t, b.Hold(100))
	b.Close()
	other.Close()
	require.Zero(t, s.Used())
	require.Empty(t, s.held)

	require.Nil(t, AccountOf(t.Context()))
	require.True(t, AccountOf(t.Context()).Hold(1<<30), "without an account there is no limit")
	AccountOf(t.Context()).Free(1 << 30)
	require.Same(t, a, AccountOf(WithAccount(t.Context(), a)))
}
