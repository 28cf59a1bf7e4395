package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkAccess is the cost of a repeated request of a pod: who it is, and whether it may, with the
// collections of a node in a file.
func BenchmarkAccess(b *testing.B) {
	for _, connected := range []bool{true, false} {
		name := "with the server"
		if !connected {
			name = "without the server"
		}
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.populate()
			r := requestOf(w.token("k1", "j1"))
			require.NoError(b, w.pass(r))
			if !connected {
				w.disconnect()
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := w.pass(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
