package deltafifo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
)

// ordered is one of client-go's stores with its keys in order, so that two queues over two of them
// can be compared.
type ordered struct{ cache.Store }

func newOrdered() ordered { return ordered{cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)} }

func (o ordered) ListKeys() []string { return slices.Sorted(slices.Values(o.Store.ListKeys())) }

// process is a consumer: it applies each delta to the store and returns the delta.
func (o ordered) process(got *popped) cache.PopProcessFunc {
	return func(obj any, initial bool) error {
		got.deltas, got.initial = obj.(cache.Deltas), initial
		for _, d := range got.deltas {
			var err error
			if d.Type == cache.Deleted {
				err = o.Delete(d.Object)
			} else {
				err = o.Update(d.Object)
			}
			if err != nil {
				return err
			}
		}
		return got.err
	}
}

type popped struct {
	deltas  cache.Deltas
	initial bool
	err     error
}

var errRefused = errors.New("refused")

// label is a transformer that counts in each object how often it was applied to it.
func label(obj any) (any, error) {
	m := obj.(*metav1.PartialObjectMetadata)
	if m.Name == "refused" {
		return nil, errRefused
	}
	m = m.DeepCopy()
	m.Annotations = map[string]string{"seen": m.Annotations["seen"] + "x"}
	return m, nil
}

// TestBesideDeltaFIFO makes the same calls to a DeltaFIFO and to client-go's DeltaFIFO: both return the
// same deltas of the same keys in the same order, and the same results.
func TestBesideDeltaFIFO(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ours, theirs := newOrdered(), newOrdered()
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "z"}), rapid.ID[string]).Draw(t, "known") {
			m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "0"}}
			require.NoError(t, errors.Join(ours.Add(m), theirs.Add(m)))
		}
		var transform cache.TransformFunc
		if rapid.Bool().Draw(t, "transform") {
			transform = label
		}
		q := NewDeltaFIFO(Options{KnownObjects: KnownStore(ours), MaxBytes: math.MaxInt64, Transformer: transform})
		f := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KnownObjects: theirs, EmitDeltaTypeReplaced: true, Transformer: transform})
		rv, depth := 0, func() int { return q.Len() }

		draw := func(t *rapid.T) any {
			rv++
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "refused", ""}).Draw(t, "name")
			if name == "" && f.HasSynced() && rapid.Bool().Draw(t, "keyless") {
				return 7 // has no key; as the very first call it would end DeltaFIFO's first list
			}
			m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: fmt.Sprint(rv)}}
			if rapid.IntRange(0, 9).Draw(t, "tombstone") == 0 {
				return cache.DeletedFinalStateUnknown{Key: name, Obj: m}
			}
			return m
		}
		both := func(t *rapid.T, call func(cache.Queue) error) {
			ourErr, theirErr := call(q), call(f)
			require.Equal(t, theirErr == nil, ourErr == nil, "ours: %v, theirs: %v", ourErr, theirErr)
			require.Equal(t, errors.As(theirErr, &cache.KeyError{}), errors.As(ourErr, &cache.KeyError{}))
		}
		t.Repeat(map[string]func(*rapid.T){
			"add":    func(t *rapid.T) { o := draw(t); both(t, func(q cache.Queue) error { return q.Add(o) }) },
			"update": func(t *rapid.T) { o := draw(t); both(t, func(q cache.Queue) error { return q.Update(o) }) },
			"delete": func(t *rapid.T) { o := draw(t); both(t, func(q cache.Queue) error { return q.Delete(o) }) },
			"resync": func(t *rapid.T) { both(t, func(q cache.Queue) error { return q.Resync() }) },
			"replace": func(t *rapid.T) {
				var list []any
				for range rapid.IntRange(0, 4).Draw(t, "items") {
					list = append(list, draw(t))
				}
				rv++
				both(t, func(q cache.Queue) error { return q.Replace(slices.Clone(list), fmt.Sprint(rv)) })
			},
			"pop": func(t *rapid.T) {
				if depth() == 0 {
					return
				}
				var a, b popped
				if rapid.Bool().Draw(t, "fail") {
					a.err, b.err = errRefused, errRefused
				}
				got, err := q.Pop(ours.process(&a))
				want, wantErr := f.Pop(theirs.process(&b))
				require.Equal(t, wantErr, err)
				require.Equal(t, want, got)
				require.Equal(t, b, a)
			},
			"": func(t *rapid.T) {
				require.Equal(t, f.HasSynced(), q.HasSynced())
				require.Equal(t, cache.IsDone(f.HasSyncedChecker()), cache.IsDone(q.HasSyncedChecker()))
				require.Equal(t, theirs.ListKeys(), ours.ListKeys())
			},
		})
		q.Close()
		f.Close()
		require.Equal(t, f.IsClosed(), q.IsClosed())
		for {
			var a, b popped
			_, err := q.Pop(ours.process(&a))
			_, wantErr := f.Pop(theirs.process(&b))
			require.Equal(t, wantErr, err)
			require.Equal(t, b, a)
			if err != nil {
				require.Equal(t, cache.ErrFIFOClosed, err)
				return
			}
		}
	})
}

// Pop waits for a key: neither a bookmark nor a flush nor an empty list is one.
func TestPopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewDeltaFIFO(Options{KnownObjects: held{}})
		done := make(chan any, 1)
		go func() {
			d, _ := q.Pop(func(any, bool) error { return nil })
			done <- d
		}()
		require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
		require.NoError(t, q.EndReplace("5"))
		require.NoError(t, q.Bookmark("6"))
		q.Flush()
		synctest.Wait()
		require.Empty(t, done)
		require.NoError(t, q.Add(obj(t, "a", "1", 7)))
		key, err := KeyOf(<-done)
		require.NoError(t, err)
		require.Equal(t, "a", key)
		require.True(t, q.HasSynced())
	})
}

// A list that streams is done when the consumer comes back from its last part; a checkpoint means that
// there is no first list.
func TestHasSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewDeltaFIFO(Options{KnownObjects: held{}})
		var first []bool // of each pop, whether it was of the first list
		go func() {
			for err := error(nil); err == nil; {
				_, err = q.Pop(func(_ any, isInInitialList bool) error {
					first = append(first, isInInitialList)
					return nil
				})
			}
		}()
		require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
		require.NoError(t, q.ReplaceItem(obj(t, "a", "1", 1)))
		synctest.Wait()
		q.AbortReplace()
		synctest.Wait()
		require.False(t, q.HasSynced(), "an aborted list does not count")

		require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
		require.NoError(t, q.ReplaceItem(obj(t, "a", "1", 1)))
		synctest.Wait()
		require.False(t, q.HasSynced())
		require.NoError(t, q.EndReplace("5"))
		synctest.Wait()
		require.True(t, q.HasSynced())
		require.True(t, cache.IsDone(q.HasSyncedChecker()))
		require.NoError(t, q.Add(obj(t, "b", "2", 6)))
		synctest.Wait()
		require.Equal(t, []bool{true, true, false}, first)
		q.Close()
	})
	for _, tc := range []struct {
		rv     string
		synced bool
	}{{"", false}, {"0", false}, {"7", true}} {
		q := NewDeltaFIFO(Options{})
		q.Start(tc.rv)
		require.Equal(t, tc.synced, q.HasSynced(), "started at %q", tc.rv)
	}
}

func TestTransformer(t *testing.T) {
	calls := 0
	transform := func(o any) (any, error) {
		if calls++; o.(*object.Object).GetName() == "bad" {
			return nil, errRefused
		}
		return obj(t, "a", "1", 10), nil
	}
	q := NewDeltaFIFO(Options{KnownObjects: held{"a": obj(t, "a", "1", 9)}, Transformer: transform})
	require.NotNil(t, q.Transformer())
	require.NoError(t, q.BeginReplace(t.Context(), Replace{}))
	require.NoError(t, q.ReplaceItem(obj(t, "a", "1", 9)))
	require.Zero(t, calls, "an item that is known already was transformed")
	require.NoError(t, q.ReplaceItem(obj(t, "a", "1", 10)))
	require.Equal(t, 1, calls)
	err := q.ReplaceItem(obj(t, "bad", "1", 10))
	require.ErrorIs(t, err, ErrUnusable)
	require.ErrorIs(t, err, errRefused)
	q.AbortReplace()
	pop(t, q.Queue)
	require.ErrorIs(t, q.Add(obj(t, "bad", "1", 11)), ErrUnusable)
	require.ErrorIs(t, q.Add(7), ErrUnusable)
}

// objects is a KnownObjectsGetter over held.
type objects struct{ held }

func (o objects) GetByKey(key string) (any, bool, error) {
	v, ok := o.held[key]
	return v, ok, nil
}

// racing is a store that changes while it is read.
type racing struct {
	objects
	then func()
}

func (r *racing) GetByKey(key string) (any, bool, error) {
	v, ok, err := r.objects.GetByKey(key)
	if then := r.then; then != nil {
		r.then = nil
		then()
	}
	return v, ok, err
}

func TestDeleteOfAbsentObject(t *testing.T) {
	known := held{"b": obj(t, "b", "2", 2)}
	q := NewDeltaFIFO(Options{KnownObjects: objects{known}})
	q.Start("9")
	require.NoError(t, q.Delete(obj(t, "a", "1", 10)))
	require.NoError(t, q.Delete(obj(t, "b", "2", 11)))
	require.NoError(t, q.Add(obj(t, "c", "3", 12)))
	b, err := q.PopBatch(t.Context())
	require.NoError(t, err)
	require.Len(t, b.Deltas, 2, "a is not stored; b is in the store; c is new")
	require.Equal(t, "12", b.Watermark)
	require.Equal(t, 3, b.Events)

	known.apply(b.Deltas)
	require.NoError(t, q.Delete(obj(t, "c", "3", 13)))
	b, err = q.PopBatch(t.Context())
	require.NoError(t, err)
	require.Len(t, b.Deltas, 1)

	known.apply(b.Deltas)
	_, _ = q.PopBatch(expired())
	require.NoError(t, q.Delete(obj(t, "c", "3", 14)))
	b, err = q.PopBatch(t.Context())
	require.NoError(t, err)
	require.Empty(t, b.Deltas)
	require.Equal(t, "14", b.Watermark, "the resourceVersion of a delete that is not queued counts all the same")

	for _, k := range []KnownObjects{nil, held{}} {
		q := NewDeltaFIFO(Options{KnownObjects: k})
		require.NoError(t, q.Delete(obj(t, "a", "1", 10)))
		require.Equal(t, 1, q.Len(), "a record may be there and corrupt")
	}
}

func TestResync(t *testing.T) {
	known := held{"a": obj(t, "a", "1", 1), "b": obj(t, "b", "2", 2), "c": obj(t, "c", "3", 3)}
	q := NewDeltaFIFO(Options{KnownObjects: objects{known}})
	q.Start("9")
	require.NoError(t, q.Update(obj(t, "b", "2", 11)))
	require.NoError(t, q.Resync())
	b := pop(t, q.Queue)
	got := map[string]cache.DeltaType{}
	for _, kd := range b.Deltas {
		require.Len(t, kd.Deltas, 1)
		got[kd.Key] = kd.Deltas[0].Type
	}
	require.Equal(t, map[string]cache.DeltaType{"a": cache.Sync, "b": cache.Updated, "c": cache.Sync}, got, "b is queued")
	require.Equal(t, "11", b.Watermark)
	require.Equal(t, 1, b.Events, "a resync is no event")

	require.NoError(t, NewDeltaFIFO(Options{KnownObjects: known}).Resync(), "KnownObjects alone has no objects to queue")
	q.Close()
	_, _ = q.PopBatch(expired())
	require.ErrorIs(t, q.Resync(), ErrClosed)
}

// An object that was read before its delete came must not be queued after it.
func TestResyncDuringDelete(t *testing.T) {
	store := &racing{objects: objects{held{"a": obj(t, "a", "1", 1)}}}
	q := NewDeltaFIFO(Options{KnownObjects: store})
	q.Start("9")
	store.then = func() {
		require.NoError(t, q.Delete(obj(t, "a", "1", 10)))
		b := pop(t, q.Queue)
		store.apply(b.Deltas)
		_, _ = q.PopBatch(expired())
	}
	require.NoError(t, q.Resync())
	require.Zero(t, q.Len())
}

// client-go's own controller runs on a DeltaFIFO: list, events, an expired watch, a
// second list, a resync.
func TestUnderClientGoController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		item := func(name string, rv int) metav1.PartialObjectMetadata {
			return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: fmt.Sprint(rv)}}
		}
		list := func(rv string, items ...metav1.PartialObjectMetadata) *metav1.PartialObjectMetadataList {
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: rv}, Items: items}
		}
		lists := []runtime.Object{list("10", item("a", 1), item("b", 2)), list("20", item("b", 2), item("c", 15))}
		first, second := watch.NewFake(), watch.NewFake()
		time.AfterFunc(time.Minute, func() {
			update := item("a", 11)
			first.Modify(&update)
			first.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
		})
		watches := []watch.Interface{first, second}

		store := newOrdered()
		q := NewDeltaFIFO(Options{KnownObjects: KnownStore(store)})
		var got []string
		var last popped
		process := store.process(&last)
		c := cache.New(&cache.Config{
			Queue: q, ObjectType: &metav1.PartialObjectMetadata{}, FullResyncPeriod: time.Hour,
			ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
				ListWithContextFunc: func(_ context.Context, _ metav1.ListOptions) (runtime.Object, error) {
					l := lists[0]
					lists = lists[1:]
					return l, nil
				},
				WatchFuncWithContext: func(_ context.Context, _ metav1.ListOptions) (watch.Interface, error) {
					w := watches[0]
					watches = watches[1:]
					return w, nil
				},
			}, noWatchList{}),
			Process: func(obj any, initial bool) error {
				key, _ := KeyOf(obj)
				for _, d := range obj.(cache.Deltas) {
					got = append(got, fmt.Sprint(d.Type, " ", key, " ", initial))
				}
				return process(obj, initial)
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
		defer cancel()
		c.RunWithContext(ctx)
		require.Equal(t, []string{
			"Replaced a true", "Replaced b true", "Updated a false", "Replaced b false", "Replaced c false", "Deleted a false",
			"Sync b false", "Sync c false",
		}, got)
		require.Equal(t, []string{"b", "c"}, store.ListKeys())
		require.True(t, c.HasSynced())
	})
}

// noWatchList is a client that can't make a list by a watch.
type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

var _ cache.TransformingStore = (*DeltaFIFO)(nil) // since client-go 0.34
