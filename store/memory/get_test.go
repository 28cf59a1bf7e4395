package memory_test

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

func get(coll store.Collection) func(key string) (*object.Object, error) {
	return coll.(*memory.Collection).Get
}

func put(name string, rv int) store.Change {
	return storetest.Put(storetest.Object("shop", name, "u", strconv.Itoa(rv), map[string]string{"app": "a"}, "x"))
}

// Get, a new view's Get and its objects are equal, and an old view never changes.
func TestGet(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		db := memory.New()
		defer db.Close()
		coll, err := db.Open(storetest.Info("configmaps"))
		require.NoError(t, err)
		rv, now := 0, map[string]int{}
		type past struct {
			view store.View
			then map[string]int
		}
		var views []past
		defer func() {
			for _, p := range views {
				p.view.Close()
			}
		}()
		draw := func(t *rapid.T, most int) (changes []store.Change) {
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 4, rapid.ID[string]).Draw(t, "names") {
				rv++
				ch := put(name, rv)
				now["shop/"+name] = rv
				if rapid.Bool().Draw(t, "delete") {
					ch.Object = nil
					delete(now, ch.Key)
				}
				changes = append(changes, ch)
			}
			for i := range rapid.IntRange(0, most).Draw(t, "more") {
				changes = append(changes, store.Change{Key: "none/" + strconv.Itoa(i)})
			}
			return changes
		}
		same := func(v store.View, then map[string]int) {
			seen := map[string]int{}
			for o, err := range v.Objects("", "") {
				require.NoError(t, err)
				seen[o.Key()], _ = strconv.Atoi(o.GetResourceVersion())
			}
			require.Equal(t, then, seen)
			require.EqualValues(t, len(then), v.State().Count)
			for _, name := range names {
				o, err := v.Get("shop/" + name)
				sameObject(t, o, err, then["shop/"+name])
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"apply": func(t *rapid.T) {
				require.NoError(t, coll.Apply(store.Batch{Changes: draw(t, 100), Checkpoint: storetest.Checkpoint(rv)}))
			},
			"bad": func(t *rapid.T) {
				bad := append(slices.Clone([]store.Change{put("a", 9999)}), store.Change{})
				require.Error(t, coll.Apply(store.Batch{Changes: bad}))
			},
			"replace": func(t *rapid.T) {
				before := map[string]int{}
				for k, v := range now {
					before[k] = v
				}
				r, err := coll.Replace()
				require.NoError(t, err)
				require.NoError(t, r.Apply(draw(t, 0)))
				if rapid.Bool().Draw(t, "abort") {
					require.NoError(t, r.Abort())
					now = before
					return
				}
				require.NoError(t, r.Commit(storetest.Checkpoint(rv)))
			},
			"view": func(t *rapid.T) {
				v, err := coll.View()
				require.NoError(t, err)
				p := past{v, map[string]int{}}
				for k, v := range now {
					p.then[k] = v
				}
				views = append(views, p)
			},
			"reopen": func(t *rapid.T) {
				require.NoError(t, coll.Reopen(storetest.Info("configmaps"), store.LabelIndex("app", "app")))
			},
			"": func(t *rapid.T) {
				for _, name := range names {
					o, err := get(coll)("shop/" + name)
					sameObject(t, o, err, now["shop/"+name])
				}
				for _, p := range views {
					same(p.view, p.then)
				}
			},
		})
	})
}

// sameObject checks a result of Get; rv is 0 if no object is expected.
func sameObject(t require.TestingT, o *object.Object, err error, rv int) {
	if rv == 0 {
		require.ErrorIs(t, err, store.ErrNotFound)
		return
	}
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(rv), o.GetResourceVersion())
}

func TestGet_Dropped_Closed(t *testing.T) {
	db := memory.New()
	coll, err := db.Open(storetest.Info("configmaps"))
	require.NoError(t, err)
	require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{put("a", 1)}}))
	other := storetest.Info("configmaps")
	other.LabelSelector = "app=a"
	require.NoError(t, coll.Reopen(other))
	_, err = get(coll)("shop/a")
	require.ErrorIs(t, err, store.ErrNotFound, "another scope, and never synced")
	require.NoError(t, db.Drop("configmaps"))
	_, err = get(coll)("shop/a")
	require.ErrorIs(t, err, store.ErrNoCollection)
	_, _, err = coll.(*memory.Collection).Values()
	require.ErrorIs(t, err, store.ErrNoCollection)
	coll, err = db.Open(other)
	require.NoError(t, err)
	require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{put("a", 1)}}))
	require.NoError(t, db.Close())
	_, err = get(coll)("shop/a")
	require.ErrorIs(t, err, store.ErrClosed)
	_, _, err = coll.(*memory.Collection).Values()
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = coll.(*memory.Collection).ValuesByIndex(store.NamespaceIndex, "shop")
	require.ErrorIs(t, err, store.ErrClosed)
}

// No reader waits for a long change: while a large batch is applied, and while an index is built, a
// view shows the state before.
func TestReadersDoNotWait(t *testing.T) {
	db := memory.New()
	defer db.Close()
	entered, leave := make(chan struct{}), make(chan struct{})
	slow := func(name, at string) store.Index {
		return store.Index{Name: name, Spec: name, Func: func(o *object.Object) []string {
			if o.GetName() == at {
				entered <- struct{}{}
				<-leave
			}
			return nil
		}}
	}
	coll, err := db.Open(storetest.Info("configmaps"), slow("batch", "last"))
	require.NoError(t, err)
	count := func() int64 {
		v, err := coll.View()
		require.NoError(t, err)
		defer v.Close()
		return v.State().Count
	}
	beside := func(before int64, work func() error) {
		require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{put("first", 1)}})) // there is no snapshot yet
		done := make(chan error, 1)
		go func() { done <- work() }()
		<-entered
		require.Equal(t, before, count())
		_, err := get(coll)("shop/first")
		require.NoError(t, err)
		leave <- struct{}{}
		require.NoError(t, <-done)
	}
	large := []store.Change{put("last", 3)}
	for i := range 1000 {
		large = append(large, store.Change{Key: "none/" + strconv.Itoa(i)})
	}
	beside(1, func() error { return coll.Apply(store.Batch{Changes: large}) })
	require.EqualValues(t, 2, count())
	beside(2, func() error { return coll.Reopen(storetest.Info("configmaps"), slow("open", "first")) })
}

// A view that is opened after a write shows the write, beside readers that are about to keep an
// older snapshot.
func TestViewAfterWrite(t *testing.T) {
	db := memory.New()
	coll, err := db.Open(storetest.Info("configmaps"))
	require.NoError(t, err)
	var readers sync.WaitGroup
	var stop atomic.Bool
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				if v, err := coll.View(); err == nil {
					v.Close()
				}
			}
		})
	}
	for rv := 1; rv <= 20_000 && !t.Failed(); rv++ {
		require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{put("a", rv)}, Checkpoint: storetest.Checkpoint(rv)}))
		if rv%3 != 0 { // a reader may be at an older snapshot meanwhile
			continue
		}
		v, err := coll.View()
		require.NoError(t, err)
		assert.Equal(t, strconv.Itoa(rv), v.State().RV)
		v.Close()
	}
	stop.Store(true)
	readers.Wait()
	require.NoError(t, db.Close())
}

// A batch that has a key twice, which it should not, is applied in order.
func TestKeyTwiceInABatch(t *testing.T) {
	db := memory.New()
	defer db.Close()
	coll, err := db.Open(storetest.Info("configmaps"), store.LabelIndex("app", "app"))
	require.NoError(t, err)
	require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{put("a", 1)}}))
	require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{storetest.Delete("shop/a"), put("a", 2), put("a", 3)}}))
	o, err := get(coll)("shop/a")
	sameObject(t, o, err, 3)
	require.EqualValues(t, 1, coll.State().Count)
}

// One object at two keys counts twice: an update of one leaves the other.
func TestObjectAtTwoKeys(t *testing.T) {
	db := memory.New()
	defer db.Close()
	coll, err := db.Open(storetest.Info("configmaps"))
	require.NoError(t, err)
	o := put("a", 1).Object
	apply := func(key string, o *object.Object) {
		require.NoError(t, coll.Apply(store.Batch{Changes: []store.Change{{Key: key, Object: o}}}))
	}
	want := map[string]*object.Object{"shop/a": o, "shop/b": o, "shop/c": o}
	for key := range want {
		apply(key, o)
	}
	r, err := coll.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Commit(storetest.Checkpoint(1)))
	want["shop/b"] = put("b", 2).Object // under its own key
	apply("shop/b", want["shop/b"])
	list, _, err := coll.(*memory.Collection).Values()
	require.NoError(t, err)
	require.Len(t, list, 3)
	for key, o := range want {
		got, err := get(coll)(key)
		require.NoError(t, err)
		require.Same(t, o, got)
	}
}
