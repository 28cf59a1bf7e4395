package memory

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// A value that no object has any more leaves nothing behind, however often it comes and
// goes: values may be as many as objects.
func TestEmptyBucketsGo(t *testing.T) {
	const values = 3 * mostMoved
	x, o := newIndexTree(store.Index{Name: "x"}), new(owner)
	move := func(out bool) {
		for i := range values {
			x.move(strconv.Itoa(i), &filed{key: "key"}, out, o)
		}
	}
	for range 2 {
		move(false)
		x.settle(o)
		require.Len(t, x.newest, values)
		require.Equal(t, values, x.values.count)
		move(true)
		require.Less(t, len(x.moved), mostMoved)
		x.settle(o)
		require.Empty(t, x.newest)
		require.Zero(t, x.values.count)
	}
}
