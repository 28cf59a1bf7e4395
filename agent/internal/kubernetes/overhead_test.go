package kubernetes

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// gate returns an agent whose server can be reached or not, and a request of a pod that it has let in.
func gate(t testing.TB, connected bool) (*world, *http.Request) {
	w := newWorld(t)
	w.populate(1000)
	r := requestOf(w.token("k1", "j1"))
	require.NoError(t, w.pass(r))
	if !connected {
		w.disconnect()
		require.False(t, w.x.connected())
	}
	require.NoError(t, w.pass(r))
	return w, r
}

// cpu returns the CPU time that this process has used.
func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAccess is the cost of a repeated request of a pod: who it is, and whether it may, with the
// collections of a node in a file. The time is that of the CPU, with the garbage collection.
func BenchmarkAccess(b *testing.B) {
	for _, connected := range []bool{true, false} {
		name := "with the server"
		if !connected {
			name = "without the server"
		}
		b.Run(name, func(b *testing.B) {
			w, r := gate(b, connected)
			b.ReportAllocs()
			began := cpu(b)
			for b.Loop() {
				if err := w.pass(r); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu(b)-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// TestAccessOverhead holds the cost of a repeated request to a budget. The time is the least of some rounds,
// with room for the race detector, which makes it tenfold: it fails if the cost grows with what is cached.
func TestAccessOverhead(t *testing.T) {
	const (
		allocations = 50
		budget      = time.Millisecond
		rounds      = 5
		requests    = 500
	)
	for _, connected := range []bool{true, false} {
		w, r := gate(t, connected)
		pass := func() {
			if err := w.pass(r); err != nil {
				t.Fatal(err)
			}
		}
		require.LessOrEqual(t, testing.AllocsPerRun(100, pass), float64(allocations), "connected %v", connected)
		least := time.Hour
		for range rounds {
			began := cpu(t)
			for range requests {
				pass()
			}
			least = min(least, (cpu(t)-began)/requests)
		}
		t.Logf("connected %v: %v of CPU", connected, least)
		require.LessOrEqual(t, least, budget, "connected %v", connected)
	}
}
