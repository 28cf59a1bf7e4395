package localapi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAge(t *testing.T) {
	for want, seconds := range map[string]float64{"0s": 0.4, "59s": 59.9, "2m5s": 125, "3h12m": 11520, "2d4h": 187200} {
		require.Equal(t, want, Age(seconds))
	}
}
