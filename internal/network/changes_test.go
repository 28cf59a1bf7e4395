package network

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReport: what belongs to one change is one call, and a network that changes all the time makes a call
// each eleven seconds.
func TestReport(t *testing.T) {
	for _, tc := range []struct {
		name  string
		times []time.Duration // of the kernel's messages
		want  []time.Duration // of the calls
	}{
		{"none", nil, nil},
		{"one", []time.Duration{5 * time.Second}, []time.Duration{6 * time.Second}},
		{"an address and its routes", []time.Duration{0, 10 * time.Millisecond, 700 * time.Millisecond}, []time.Duration{time.Second}},
		{"another one soon", []time.Duration{0, 3 * time.Second, 4 * time.Second}, []time.Duration{time.Second, 12 * time.Second}},
		{"another one later", []time.Duration{0, 40 * time.Second}, []time.Duration{time.Second, 41 * time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, came := time.Now(), make(chan struct{}, 1)
				for _, after := range tc.times {
					time.AfterFunc(after, func() {
						select {
						case came <- struct{}{}:
						default:
						}
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var got []time.Duration
				report(ctx, clock.RealClock{}, came, func() { got = append(got, time.Since(began)) })
				require.Equal(t, tc.want, got)
			})
		})
	}
}
