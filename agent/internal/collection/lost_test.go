package collection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLostRequests loses one request that the reflector needs, with or without the headers of the answer,
// while the connection stays alive. Until it is given up the collection is not fresh, and soon after it is.
func TestLostRequests(t *testing.T) {
	for _, tc := range []struct {
		class   string
		headers bool
	}{
		{"identity", false},
		{"identity", true},
		{"probe", false},
		{"list", false},
		{"list", true},
		{"watch", false},
	} {
		name := tc.class + ", no answer"
		if tc.headers {
			name = tc.class + ", no body"
		}
		t.Run(name, func(t *testing.T) {
			follow(t, func(f followed) {
				f.set(func(b *box) { b.lost, b.headers, b.expired = tc.class, tc.headers, tc.class == "list" })
				require.NoError(t, f.Pause(f.t.Context(), func() error { return nil }))
				f.change(true)
				f.after(80 * time.Second)
				require.False(t, f.Connected())
				f.after(40 * time.Second)
				f.requireFresh()
				require.EqualValues(t, 2, f.objects())
			})
		})
	}
}
