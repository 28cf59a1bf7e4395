package deltafifo

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
)

// A repair takes its place among the deltas of its key and moves no watermark.
func TestRepair(t *testing.T) {
	q := New(Options{})
	q.Start("9")
	require.NoError(t, q.Repair("a", obj(t, "a", "1", 30)))
	require.NoError(t, q.Repair("b", nil))
	require.ErrorContains(t, q.Repair("a", obj(t, "c", "1", 30)), "repair a with c")
	b, err := q.PopBatch(t.Context())
	require.NoError(t, err)
	require.Equal(t, "9", b.Watermark, "events before 30 may be still to come")
	require.Zero(t, b.Events)
	require.Equal(t, []KeyDeltas{
		{"a", cache.Deltas{{Type: Repaired, Object: obj(t, "a", "1", 30)}}, []uint64{1}},
		{"b", cache.Deltas{{Type: Repaired, Object: cache.DeletedFinalStateUnknown{Key: "b"}}}, []uint64{2}},
	}, b.Deltas)
}

// A repair never waits: behind a list it would be older than the listed state.
func TestRepairIsRefused(t *testing.T) {
	q := New(Options{MaxBytes: 1})
	require.NoError(t, q.Add(obj(t, "a", "1", 10)))
	require.ErrorIs(t, q.Repair("b", nil), ErrFull)
	_, err := q.PopBatch(t.Context())
	require.NoError(t, err)
	require.NoError(t, q.Repair("b", nil), "there is room again")
	_, err = q.PopBatch(t.Context())
	require.NoError(t, err)
	_, err = q.PopBatch(expired())
	require.Error(t, err)

	require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
	require.ErrorIs(t, q.Repair("b", nil), ErrReplacing)
	require.NoError(t, q.EndReplace("20"))
	require.ErrorIs(t, q.Repair("b", nil), ErrReplacing, "the list was not taken")
	q.Close()
	require.ErrorIs(t, q.Repair("b", nil), ErrClosed)
}
