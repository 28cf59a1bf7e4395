package localapi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAge(t *testing.T) {
	for _, tc := range []struct {
		want    string
		seconds float64
	}{{"0s", 0.4}, {"59s", 59.9}, {"2m5s", 125}, {"3h12m", 11520}, {"2d4h", 187200}} {
		require.Equal(t, tc.want, Age(tc.seconds))
	}
}
