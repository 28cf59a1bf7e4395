package deltafifo

import (
	"iter"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
)

// A correction takes its place among the deltas of its key and moves no watermark. It is refused if
// anything was queued since the resourceVersion that the caller knows, even if that left no delta.
func TestCorrect(t *testing.T) {
	q := NewDeltaFIFO(Options{KnownObjects: knownNothing{}})
	require.ErrorIs(t, q.Correct("a", nil, ""), ErrChanged, "nothing is known of the content")
	q.Start("9")
	require.ErrorContains(t, q.Correct("a", obj(t, "c", "1", 30), "9"), "a: the object is c")
	require.NoError(t, q.Correct("a", obj(t, "a", "1", 30), "9"))
	require.NoError(t, q.Correct("b", nil, "9"))
	b := pop(t, q.Queue)
	require.Equal(t, "9", b.Watermark, "events before 30 may be still to come")
	require.Zero(t, b.Events)
	require.Equal(t, []KeyDeltas{
		{Key: "a", Deltas: cache.Deltas{{Type: Corrected, Object: obj(t, "a", "1", 30)}}, Arrived: []uint64{1}},
		{Key: "b", Deltas: cache.Deltas{{Type: Corrected, Object: cache.DeletedFinalStateUnknown{Key: "b"}}}, Arrived: []uint64{2}},
	}, b.Deltas)
	_, err := q.PopBatch(expired())
	require.Error(t, err)

	require.NoError(t, q.Delete(obj(t, "c", "1", 10)))
	require.Zero(t, q.Len(), "the consumer does not have it")
	require.ErrorIs(t, q.Correct("c", obj(t, "c", "1", 8), "9"), ErrChanged)
	require.NoError(t, q.Bookmark("11"))
	require.ErrorIs(t, q.Correct("a", nil, "10"), ErrChanged)
	require.NoError(t, q.Correct("a", nil, "11"))
}

// A correction never waits: behind a list it would be older than the listed state.
func TestCorrectIsRefused(t *testing.T) {
	q := New(Options{MaxBytes: 1})
	require.NoError(t, q.Add(obj(t, "a", "1", 10)))
	require.NoError(t, q.Bookmark("10"))
	require.ErrorIs(t, q.Correct("b", nil, "10"), ErrChanged, "the queue is full")
	pop(t, q)
	require.NoError(t, q.Correct("b", nil, "10"), "a correction once there is room again")
	pop(t, q)
	_, err := q.PopBatch(expired())
	require.Error(t, err)

	require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
	require.ErrorIs(t, q.Correct("b", nil, "10"), ErrChanged)
	require.NoError(t, q.EndReplace("10"))
	require.ErrorIs(t, q.Correct("b", nil, "10"), ErrChanged, "the list was not taken")
	q.Close()
	require.ErrorIs(t, q.Correct("b", nil, "10"), ErrClosed)
}

type knownNothing struct{}

func (knownNothing) Version(string) (uid, rv string, ok bool, err error) { return "", "", false, nil }
func (knownNothing) Keys() iter.Seq2[string, error]                      { return held{}.Keys() }
func (knownNothing) GetByKey(string) (any, bool, error)                  { return nil, false, nil }
