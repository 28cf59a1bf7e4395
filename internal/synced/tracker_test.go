package synced_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/internal/synced"
)

var _ cache.DoneChecker = (*synced.Tracker)(nil)

func TestTracker(t *testing.T) {
	tests := []struct {
		name  string
		calls string // s: Start, f: Finished, n: Named
		want  bool
	}{
		{"nothing said", "", false},
		{"an empty list", "n", true},
		{"finished before all is named", "sf", false},
		{"named before it is finished", "sn", false},
		{"finished last", "snf", true},
		{"named last", "sfn", true},
		{"one of two is open", "ssnf", false},
		{"started afterwards", "ns", true},
		{"named twice", "nn", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := synced.New("pods")
			for _, c := range tt.calls {
				map[rune]func(){'s': tr.Start, 'f': tr.Finished, 'n': tr.Named}[c]()
			}
			require.Equal(t, tt.want, tr.HasSynced())
			select {
			case <-tr.Done():
				require.True(t, tt.want)
			default:
				require.False(t, tt.want)
			}
		})
	}
	require.Panics(t, synced.New("pods").Finished)
}
