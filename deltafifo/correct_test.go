package deltafifo

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
)

// A correction takes its place among the deltas of its key and moves no watermark. No other delta
// of the key may have been queued since Attend.
func TestCorrect(t *testing.T) {
	q := New(Options{})
	q.Start("9")
	a, b := q.Attend("a"), q.Attend("b")
	require.ErrorContains(t, a.Correct(obj(t, "c", "1", 30)), "correct a with c")
	require.NoError(t, q.Add(obj(t, "b", "2", 10)))
	require.NoError(t, a.Correct(obj(t, "a", "1", 5)))
	require.False(t, a.Changed(), "by itself")
	require.ErrorIs(t, b.Correct(nil), ErrChanged)
	batch, err := q.PopBatch(t.Context())
	require.NoError(t, err)
	require.Equal(t, "10", batch.Watermark)
	require.Equal(t, 1, batch.Events)
	require.Contains(t, batch.Deltas, KeyDeltas{"a", cache.Deltas{{Type: Corrected, Object: obj(t, "a", "1", 5)}}, []uint64{2}})
	b.Close()

	b = q.Attend("b")
	require.NoError(t, b.Correct(nil), "no other delta came since Attend")
	batch, err = q.PopBatch(t.Context())
	require.NoError(t, err)
	require.Equal(t, []KeyDeltas{{"b", cache.Deltas{{Type: Corrected, Object: cache.DeletedFinalStateUnknown{Key: "b"}}}, []uint64{3}}}, batch.Deltas)
	_, err = q.PopBatch(expired())
	require.Error(t, err)

	require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
	q.AbortReplace()
	require.ErrorIs(t, b.Correct(nil), ErrChanged, "a list may have brought the key")
	a.Close()
	b.Close()
	require.Empty(t, q.attended)
}

// A deletion of an object that the consumer does not have is not queued, and marks the Attention as
// changed all the same.
func TestCorrectAfterDeletion(t *testing.T) {
	q := New(Options{Known: knownNothing{}})
	q.Start("9")
	a := q.Attend("a")
	defer a.Close()
	require.NoError(t, q.Delete(obj(t, "a", "1", 10)))
	require.ErrorIs(t, a.Correct(obj(t, "a", "1", 5)), ErrChanged)
}

type knownNothing struct{}

func (knownNothing) Lookup(string) (uid, rv string, ok bool, err error) { return "", "", false, nil }
func (knownNothing) Keys() ([]string, error)                            { return nil, nil }
func (knownNothing) GetByKey(string) (any, bool, error)                 { return nil, false, nil }
