package deltafifo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func obj(t require.TestingT, name, uid string, rv int) *object.Object {
	o, err := object.Parse(fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"}}`, name, uid, rv))
	require.NoError(t, err)
	return o
}

// held is a consumer's content, by key.
type held map[string]*object.Object

func (h held) Version(key string) (string, string, bool, error) {
	o, ok := h[key]
	if !ok {
		return "", "", false, nil
	}
	return string(o.GetUID()), o.GetResourceVersion(), true, nil
}

func (h held) Keys() iter.Seq2[string, error] { return inOrder(maps.Keys(h)) }

func (h held) apply(deltas []KeyDeltas) {
	for _, kd := range deltas {
		switch d := kd.Deltas.Newest(); d.Type {
		case cache.Deleted:
			delete(h, kd.Key)
		default:
			h[kd.Key] = d.Object.(*object.Object)
		}
	}
}

// expired is a context that has ended: PopBatch with it only marks the batch before as done.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestWatermark(t *testing.T) {
	q := New(Options{})
	q.Start("9")
	require.NoError(t, q.Add(obj(t, "a", "1", 10)))
	require.NoError(t, q.Add(obj(t, "b", "2", 11)))
	require.NoError(t, q.Update(obj(t, "a", "1", 12)))

	b, err := q.pop(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "a", b.Deltas[0].Key)
	require.Len(t, b.Deltas[0].Deltas, 2)
	require.Equal(t, "10", b.Watermark, "b@11 is still pending")

	b = pop(t, q)
	require.Equal(t, "12", b.Watermark, "the watermark of a drained queue is the newest resourceVersion")
}

func TestBookmarkGoesThroughTheQueue(t *testing.T) {
	q := New(Options{})
	q.Start("9")
	require.NoError(t, q.Add(obj(t, "a", "1", 10)))
	require.NoError(t, q.Bookmark("20"))
	b := pop(t, q)
	require.Equal(t, "20", b.Watermark)
	require.Equal(t, 1, b.Events)
	require.Equal(t, 1, b.Bookmarks)
	require.NoError(t, q.Bookmark("30"))
	b = pop(t, q)
	require.Empty(t, b.Deltas)
	require.Equal(t, "30", b.Watermark)
}

func TestDeletesMerge(t *testing.T) {
	q := New(Options{})
	require.NoError(t, q.Delete(obj(t, "a", "1", 10)))
	require.NoError(t, q.Delete(cache.DeletedFinalStateUnknown{Key: "a"}))
	b := pop(t, q)
	require.Len(t, b.Deltas[0].Deltas, 1)
	require.IsType(t, &object.Object{}, b.Deltas[0].Deltas[0].Object, "the delete that has the final state is kept")
}

// The ADDED events that begin a watch without a resourceVersion come in any order: their
// resourceVersions are no checkpoints. Those of later events are.
func TestSyntheticEventsAreNoCheckpoint(t *testing.T) {
	for _, from := range []string{"", "0"} {
		q := New(Options{})
		q.Start(from)
		require.NoError(t, q.Add(obj(t, "a", "1", 9)))
		require.NoError(t, q.Add(obj(t, "b", "2", 5)))
		b := pop(t, q)
		require.Equal(t, from, b.Watermark)
		require.NoError(t, q.Bookmark("9"))
		require.NoError(t, q.Add(obj(t, "c", "3", 10)))
		b = pop(t, q)
		require.Equal(t, "10", b.Watermark)
	}
}

func TestReplaceProducesDifferencesOnly(t *testing.T) {
	known := held{"same": obj(t, "same", "1", 5), "changed": obj(t, "changed", "2", 6), "reborn": obj(t, "reborn", "3", 7), "gone": obj(t, "gone", "4", 8)}
	list := func(force bool) map[string]cache.DeltaType {
		q := New(Options{KnownObjects: known})
		require.NoError(t, q.BeginReplace(t.Context(), Replace{Reason: "expired", Force: force}))
		require.ErrorIs(t, q.Add(obj(t, "x", "9", 9)), ErrReplacing)
		require.ErrorIs(t, q.Bookmark("9"), ErrReplacing)
		for _, o := range []*object.Object{obj(t, "same", "1", 5), obj(t, "changed", "2", 9), obj(t, "reborn", "33", 7), obj(t, "new", "5", 10)} {
			require.NoError(t, q.ReplaceItem(o))
		}
		require.NoError(t, q.EndReplace("20"))
		b := pop(t, q)
		require.True(t, b.List)
		require.True(t, b.ListDone)
		require.Equal(t, "20", b.Watermark)
		require.Equal(t, "expired", b.Replace.Reason)
		got := map[string]cache.DeltaType{}
		for _, kd := range b.Deltas {
			got[kd.Key] = kd.Deltas.Newest().Type
		}
		return got
	}
	require.Equal(t, map[string]cache.DeltaType{
		"changed": cache.Replaced, "reborn": cache.Replaced, "new": cache.Replaced, "gone": cache.Deleted,
	}, list(false))
	require.Equal(t, map[string]cache.DeltaType{
		"same": cache.Replaced, "changed": cache.Replaced, "reborn": cache.Replaced, "new": cache.Replaced, "gone": cache.Deleted,
	}, list(true))
}

// Each item that the consumer holds in another version is compared, and ReplaceItem returns the
// error.
func TestReplaceCompares(t *testing.T) {
	known := held{"same": obj(t, "same", "1", 5), "changed": obj(t, "changed", "2", 6)}
	refused := errors.New("another history")
	asked := map[string][2]Version{}
	compare := func(key string, held, item Version) error {
		asked[key] = [2]Version{held, item}
		if item.RV == "3" {
			return refused
		}
		return nil
	}
	q := New(Options{KnownObjects: known})
	require.NoError(t, q.BeginReplace(t.Context(), Replace{Compare: compare}))
	for _, o := range []*object.Object{obj(t, "same", "1", 5), obj(t, "changed", "2", 9), obj(t, "new", "5", 3)} {
		require.NoError(t, q.ReplaceItem(o))
	}
	require.Equal(t, map[string][2]Version{"changed": {{"2", "6"}, {"2", "9"}}}, asked, "an unchanged item and a new one are not compared")
	require.ErrorIs(t, q.ReplaceItem(obj(t, "changed", "2", 3)), refused)
	q.AbortReplace()
	pop(t, q)
	_, _ = q.PopBatch(expired())

	clear(asked)
	require.NoError(t, q.BeginReplace(t.Context(), Replace{Compare: compare, Force: true}))
	require.NoError(t, q.ReplaceItem(obj(t, "changed", "2", 3)))
	require.Empty(t, asked, "a forced list compares nothing")
	q.AbortReplace()
}

// An item that can't be used is not missing from the list, unless the list is forced.
func TestKeepItem(t *testing.T) {
	known := held{"a": obj(t, "a", "1", 5), "b": obj(t, "b", "2", 6)}
	for _, force := range []bool{false, true} {
		q := New(Options{KnownObjects: known})
		q.KeepItem("a") // outside of a list it does nothing
		require.NoError(t, q.BeginReplace(t.Context(), Replace{Force: force}))
		q.KeepItem("a")
		require.NoError(t, q.EndReplace("20"))
		b := pop(t, q)
		want := []string{"b"}
		if force {
			want = []string{"a", "b"}
		}
		var gone []string
		for _, kd := range b.Deltas {
			require.Equal(t, cache.Deleted, kd.Deltas.Newest().Type)
			gone = append(gone, kd.Key)
		}
		require.ElementsMatch(t, want, gone)
	}
}

// An item of which only the version is known is in the list if the consumer holds that version.
func TestKeepVersion(t *testing.T) {
	known := held{"a": obj(t, "a", "1", 5), "b": obj(t, "b", "2", 6), "c": obj(t, "c", "3", 7)}
	for _, force := range []bool{false, true} {
		q := New(Options{KnownObjects: known})
		n, err := q.Held()
		require.NoError(t, err)
		require.Equal(t, 3, n)
		_, err = q.KeepVersion("a", Version{"1", "5"})
		require.ErrorIs(t, err, ErrReplacing)
		require.NoError(t, q.BeginReplace(t.Context(), Replace{Force: force}))
		for _, x := range []struct {
			key  string
			v    Version
			kept bool
		}{
			{"a", Version{"1", "5"}, true}, {"b", Version{"2", "9"}, false}, {"c", Version{"9", "7"}, false}, {"d", Version{"4", "8"}, false},
		} {
			kept, err := q.KeepVersion(x.key, x.v)
			require.NoError(t, err)
			require.Equal(t, x.kept && !force, kept, x.key)
		}
		require.NoError(t, q.ReplaceItem(obj(t, "b", "2", 9)))
		require.NoError(t, q.EndReplace("20"))
		got := map[string]cache.DeltaType{}
		for _, kd := range pop(t, q).Deltas {
			got[kd.Key] = kd.Deltas.Newest().Type
		}
		want := map[string]cache.DeltaType{"b": cache.Replaced, "c": cache.Deleted}
		if force {
			want["a"] = cache.Deleted
		}
		require.Equal(t, want, got)
	}
}

// A key that a list named and dropped again is deleted at its end, if the consumer held it before
// or may have taken it as a part of the list.
func TestDropItem(t *testing.T) {
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprintf("taken %v", taken), func(t *testing.T) {
			q := New(Options{KnownObjects: held{"a": obj(t, "a", "1", 5), "b": obj(t, "b", "2", 6)}})
			q.DropItem("a") // outside of a list it does nothing
			require.NoError(t, q.BeginReplace(t.Context(), Replace{Confirm: func(_ int, missing []string) error {
				require.Equal(t, []string{"a"}, missing)
				return nil
			}}))
			for _, o := range []any{obj(t, "a", "1", 9), obj(t, "b", "2", 6), obj(t, "c", "3", 10), obj(t, "d", "4", 11)} {
				require.NoError(t, q.ReplaceItem(o))
			}
			if taken {
				b := pop(t, q)
				require.Len(t, b.Deltas, 3)
			}
			for _, key := range []string{"a", "c", "d", "never listed"} {
				q.DropItem(key)
			}
			want := map[string]cache.DeltaType{"a": cache.Deleted, "c": cache.Deleted, "d": cache.Deleted}
			if taken {
				require.NoError(t, q.ReplaceItem(obj(t, "d", "5", 12)))
				want["d"] = cache.Replaced
			}
			require.NoError(t, q.EndReplace("20"))
			b := pop(t, q)
			require.True(t, b.ListDone)
			require.True(t, b.Repeated)
			newest := map[string]cache.DeltaType{}
			for _, kd := range b.Deltas {
				newest[kd.Key] = kd.Deltas.Newest().Type
			}
			require.Equal(t, want, newest)
		})
	}
}

// A list whose deletions are not confirmed deletes nothing, and can be aborted.
func TestUnconfirmedDeletions(t *testing.T) {
	known := held{"a": obj(t, "a", "1", 5), "b": obj(t, "b", "2", 6), "c": obj(t, "c", "3", 7)}
	q := New(Options{KnownObjects: known})
	refused := errors.New("too many")
	for _, answer := range []error{refused, nil} {
		asked := 0
		require.NoError(t, q.BeginReplace(t.Context(), Replace{Confirm: func(held int, missing []string) error {
			asked++
			require.Equal(t, 3, held)
			require.ElementsMatch(t, []string{"a", "c"}, missing)
			return answer
		}}))
		require.NoError(t, q.ReplaceItem(obj(t, "b", "2", 9)))
		require.ErrorIs(t, q.EndReplace("20"), answer)
		require.Equal(t, 1, asked)
		if answer != nil {
			q.AbortReplace()
		}
		b := pop(t, q)
		require.Equal(t, answer != nil, b.ListAborted)
		require.Equal(t, answer == nil, b.ListDone)
		if answer != nil {
			require.Empty(t, b.Deltas)
		} else {
			require.Len(t, b.Deltas, 3)
		}
		_, _ = q.PopBatch(expired())
	}
}

func TestAbortedListIsDiscarded(t *testing.T) {
	q := New(Options{KnownObjects: held{}})
	require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
	require.NoError(t, q.ReplaceItem(obj(t, "a", "1", 1)))
	q.AbortReplace()
	b := pop(t, q)
	require.True(t, b.ListAborted)
	require.Empty(t, b.Deltas)
	require.Empty(t, b.Watermark)
	require.ErrorIs(t, q.EndReplace("2"), ErrReplacing)
	_, _ = q.PopBatch(expired())
	require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
}

func TestBeginReplaceWaitsForTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{})
		require.NoError(t, q.Add(obj(t, "a", "1", 1)))
		began := make(chan error, 1)
		go func() { began <- q.BeginReplace(t.Context(), Replace{}) }()
		b := pop(t, q)
		require.Len(t, b.Deltas, 1)
		synctest.Wait()
		require.Empty(t, began, "the batch is still with the consumer")
		_, _ = q.PopBatch(expired())
		require.NoError(t, <-began)
	})
}

func TestBudgetBlocksProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{MaxBytes: 1000})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 100 {
				if q.Add(obj(t, strconv.Itoa(i), "1", i+1)) != nil {
					return
				}
			}
		}()
		synctest.Wait()
		require.LessOrEqual(t, q.Bytes(), int64(1000))
		require.Less(t, q.Len(), 100)
		got := 0
		for got < 100 {
			b := pop(t, q)
			got += len(b.Deltas)
			require.LessOrEqual(t, q.Bytes(), int64(1000))
		}
		<-done
	})
}

func TestCloseUnblocksProducerAndConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{MaxBytes: 100})
		q.Start("1")
		require.NoError(t, q.Add(obj(t, "a", "1", 2)))
		blocked := make(chan error, 1)
		go func() { blocked <- q.Add(obj(t, "b", "1", 3)) }()
		synctest.Wait()
		q.Close()
		require.ErrorIs(t, <-blocked, ErrClosed)
		b, err := q.PopBatch(t.Context())
		require.NoError(t, err, "pending deltas are returned after Close")
		require.Equal(t, "2", b.Watermark)
		_, err = q.PopBatch(t.Context())
		require.ErrorIs(t, err, ErrClosed)
	})
}

// The watch may begin before the consumer has taken the end of the list.
func TestEventsWaitForTheEndOfTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{KnownObjects: held{}})
		require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
		require.NoError(t, q.ReplaceItem(obj(t, "a", "1", 5)))
		require.NoError(t, q.EndReplace("9"))
		require.True(t, q.ListPending())
		queued := make(chan error, 1)
		go func() { queued <- q.Add(obj(t, "b", "2", 10)) }()
		synctest.Wait()
		require.Empty(t, queued)
		b := pop(t, q)
		require.True(t, b.ListDone)
		require.Len(t, b.Deltas, 1)
		require.Equal(t, "9", b.Watermark)
		require.NoError(t, <-queued)
		require.True(t, q.ListPending(), "the consumer has not finished with the list")
		b, err := q.PopBatch(t.Context())
		require.False(t, q.ListPending())
		require.NoError(t, err)
		require.False(t, b.List)
		require.Equal(t, "10", b.Watermark)
	})
}

// A flush comes with what is queued, or alone if nothing is.
func TestFlush(t *testing.T) {
	q := New(Options{})
	q.Start("9")
	require.NoError(t, q.Add(obj(t, "a", "1", 10)))
	q.Flush()
	b := pop(t, q)
	require.Len(t, b.Deltas, 1)
	require.True(t, b.Flush)
	q.Flush()
	b = pop(t, q)
	require.Empty(t, b.Deltas)
	require.True(t, b.Flush)
	require.Equal(t, "10", b.Watermark)
}

// A skipped event marks the next batch, unless a complete list comes first: the list has what was
// left out before it. A list that is aborted does not.
func TestSkip(t *testing.T) {
	q := New(Options{})
	q.Start("9")
	pop := func() Batch {
		b := pop(t, q)
		return b
	}
	require.NoError(t, q.Skip())
	require.NoError(t, q.Add(obj(t, "a", "1", 11)))
	require.True(t, pop().Skipped)
	require.NoError(t, q.Bookmark("12"))
	require.False(t, pop().Skipped, "only the first batch after Skip is marked")

	list := func(end func()) (last Batch) {
		began := make(chan struct{})
		go func() {
			defer close(began)
			_ = q.BeginReplace(t.Context(), Replace{})
			end()
		}()
		last = pop()
		<-began
		return last
	}
	require.NoError(t, q.Skip())
	require.True(t, list(q.AbortReplace).ListAborted)
	require.NoError(t, q.Bookmark("13"))
	require.True(t, pop().Skipped, "an aborted list does not end the mark")
	require.NoError(t, q.Skip())
	b := list(func() { _ = q.EndReplace("14") })
	require.True(t, b.ListDone)
	require.False(t, b.Skipped)
	require.NoError(t, q.Bookmark("15"))
	require.False(t, pop().Skipped, "the complete list has the skipped object")
	q.Close()
	require.ErrorIs(t, q.Skip(), ErrClosed)
}

// pop is PopBatch with a limit on the number of keys; 0 is none.
func (q *Queue) pop(ctx context.Context, limit int) (Batch, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.nextLocked(ctx, limit)
}

// A list is pending from its beginning until the consumer is done with its last part.
func TestListPending(t *testing.T) {
	q := New(Options{KnownObjects: held{}})
	pop := func(want bool) {
		t.Helper()
		_, err := q.PopBatch(t.Context())
		require.NoError(t, err)
		require.True(t, q.ListPending(), "a part of the list is with the consumer")
		_, _ = q.PopBatch(expired())
		require.Equal(t, want, q.ListPending())
	}
	require.False(t, q.ListPending())
	require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
	require.NoError(t, q.ReplaceItem(obj(t, "a", "1", 1)))
	pop(true)
	require.NoError(t, q.EndReplace("5"))
	pop(false)
}

// tester is a test or a property.
type tester interface {
	require.TestingT
	Helper()
	Context() context.Context
}

// pop returns the next batch.
func pop(t tester, q *Queue) Batch {
	t.Helper()
	b, err := q.PopBatch(t.Context())
	require.NoError(t, err)
	return b
}
