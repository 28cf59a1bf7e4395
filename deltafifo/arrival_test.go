package deltafifo

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
)

// The positions of the deltas restore the stream that was queued, over all keys and batches: no
// delta of a batch arrived after one of the next batch.
func TestArrivalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New(Options{})
		q.Start("1")
		var stream, got []string
		var last uint64 // position of the newest delta of the batches so far
		take := func() {
			if q.Len() == 0 {
				return
			}
			b := pop(t, q)
			type arrival struct {
				at    uint64
				delta string
			}
			var batch []arrival
			for _, kd := range b.Deltas {
				require.Len(t, kd.Arrived, len(kd.Deltas))
				require.True(t, slices.IsSorted(kd.Arrived))
				for i, d := range kd.Deltas {
					require.Greater(t, kd.Arrived[i], last)
					batch = append(batch, arrival{kd.Arrived[i], string(d.Type) + kd.Key})
				}
			}
			slices.SortFunc(batch, func(a, b arrival) int { return int(a.at) - int(b.at) })
			for _, a := range batch {
				got, last = append(got, a.delta), a.at
			}
		}
		deleted := map[string]bool{} // keys whose newest delta is a pending deletion
		for n := range rapid.IntRange(1, 40).Draw(t, "events") {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			o := obj(t, key, "u", n+2)
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				require.NoError(t, q.Delete(o))
				if !deleted[key] { // two deletions in a row are one, at the place of the first
					stream = append(stream, string(cache.Deleted)+key)
				}
				deleted[key] = true
			case 1:
				take()
				clear(deleted)
			case 2:
				require.NoError(t, q.Bookmark(strconv.Itoa(n+2)))
			default:
				require.NoError(t, q.Update(o))
				stream, deleted[key] = append(stream, string(cache.Updated)+key), false
			}
		}
		take()
		require.Equal(t, stream, got)
	})
}
