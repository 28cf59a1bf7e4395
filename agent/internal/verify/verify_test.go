package verify

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/upstream"
)

// The other tests are in test/e2e: they need a server with a history.

// newComparison returns a comparison of n stored objects, a/0000 and so on, with UID "u" and
// resourceVersion "5".
func newComparison(t *testing.T, n int) *comparison {
	t.Helper()
	db := memory.New()
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	stored, err := db.Open(store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true})
	require.NoError(t, err)
	var b store.Batch
	for i := range n {
		o, err := object.Parse(fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"a","name":"%04d","uid":"u","resourceVersion":"5"}}`, i))
		require.NoError(t, err)
		b.Changes = append(b.Changes, store.Change{Key: o.Key(), Object: o})
	}
	require.NoError(t, stored.Apply(b))
	return &comparison{stored: stored}
}

// TestCompare checks which keys look different, page by page.
func TestCompare(t *testing.T) {
	for _, test := range []struct {
		name   string
		server []upstream.Version
		want   []string
	}{
		{"same", []upstream.Version{{Key: "a/0000", UID: "u", RV: "5"}, {Key: "a/0001", UID: "u", RV: "5"}, {Key: "a/0002", UID: "u", RV: "5"}}, nil},
		{"another version", []upstream.Version{{Key: "a/0000", UID: "u", RV: "5"}, {Key: "a/0001", UID: "u", RV: "6"}, {Key: "a/0002", UID: "u", RV: "5"}}, []string{"a/0001"}},
		{"another object", []upstream.Version{{Key: "a/0000", UID: "u", RV: "5"}, {Key: "a/0001", UID: "u", RV: "5"}, {Key: "a/0002", UID: "x", RV: "5"}}, []string{"a/0002"}},
		{"extra in the store", []upstream.Version{{Key: "a/0000", UID: "u", RV: "5"}}, []string{"a/0001", "a/0002"}},
		{"missing in the store", []upstream.Version{
			{Key: "A/0", UID: "u", RV: "5"}, {Key: "a/0000", UID: "u", RV: "5"}, {Key: "a/00000", UID: "u", RV: "5"},
			{Key: "a/0001", UID: "u", RV: "5"}, {Key: "a/0002", UID: "u", RV: "5"}, {Key: "b/0", UID: "u", RV: "5"},
		}, []string{"A/0", "a/00000", "b/0"}},
		{"nothing on the server", nil, []string{"a/0000", "a/0001", "a/0002"}},
	} {
		for _, pageSize := range []int{1, 2, 100} {
			t.Run(fmt.Sprintf("%s, pages of %d", test.name, pageSize), func(t *testing.T) {
				v := newComparison(t, 3)
				for _, x := range test.server {
					v.page, v.newest = append(v.page, x), x.Key
					if len(v.page) == pageSize {
						require.NoError(t, v.compare(false))
					}
				}
				require.NoError(t, v.compare(true))
				require.Equal(t, test.want, v.suspects)
				require.Zero(t, v.result.Undecided)
			})
		}
	}
}

// TestCompare_ManySuspects checks that keys beyond those that are remembered count as undecided.
func TestCompare_ManySuspects(t *testing.T) {
	v := newComparison(t, maxSuspects+7)
	require.NoError(t, v.compare(true))
	require.Len(t, v.suspects, maxSuspects)
	require.EqualValues(t, 7, v.result.Undecided)
}
