package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// The schema of a list stays with the checkpoint until the next list.
func TestSchemaOfTheNewestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := memoryCollection(t)
		p := start(t, coll)
		for _, schema := range []string{"one", "two", ""} {
			require.NoError(t, p.queue.BeginReplace(t.Context(), deltafifo.Replace{Reason: "expired", Schema: schema}))
			require.NoError(t, p.queue.EndReplace("10"))
			synctest.Wait()
			require.Equal(t, schema, coll.State().Schema)
			require.NoError(t, p.queue.Bookmark("11"))
			synctest.Wait()
			require.Equal(t, schema, coll.State().Schema)
			require.Equal(t, "11", coll.State().RV)
		}
	})
}

// A resumed watch replays stored events: no object goes back in time, and sinks get no event
// twice.
func TestReplayedEventsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, memoryCollection(t))
		p.list(t, store.ReasonInitial, "10", obj("a", "1", 9))
		synctest.Wait()
		p.rec.take()
		require.NoError(t, p.queue.Update(obj("a", "1", 7)))
		require.NoError(t, p.queue.Update(obj("a", "1", 9)))
		require.NoError(t, p.queue.Delete(obj("a", "1", 8)))
		synctest.Wait()
		require.Empty(t, p.rec.take())
		require.EqualValues(t, 1, p.coll.State().Count)
		require.NoError(t, p.queue.Update(obj("a", "1", 11)))
		synctest.Wait()
		require.Equal(t, []string{"update a@9 a@11"}, p.rec.take())
		// No replay: the delete is of the stored state.
		require.NoError(t, p.queue.Delete(obj("a", "1", 11)))
		synctest.Wait()
		require.Equal(t, []string{"delete a@11"}, p.rec.take())
	})
}

// An event that brings nothing, as a proxy may repeat it, is counted and proves nothing.
func TestRepeatedEventProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, memoryCollection(t))
		p.list(t, store.ReasonInitial, "10", obj("a", "1", 10))
		synctest.Wait()
		proven := p.stats.Counters().Watched
		require.False(t, proven.IsZero())
		time.Sleep(time.Minute)
		require.NoError(t, p.queue.Update(obj("a", "1", 10)))
		synctest.Wait()
		require.Equal(t, 1, p.stats.Counters().Counts.Stale)
		require.Equal(t, proven, p.stats.Counters().Watched)
	})
}

// An unfinished list reaches neither store nor sinks, and deletes nothing.
func TestAbortedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, memoryCollection(t))
		p.list(t, store.ReasonInitial, "10", obj("a", "1", 9))
		synctest.Wait()
		p.rec.take()
		require.NoError(t, p.queue.BeginReplace(t.Context(), deltafifo.Replace{}))
		require.NoError(t, p.queue.ReplaceItem(obj("b", "2", 11)))
		synctest.Wait()
		p.queue.AbortReplace()
		synctest.Wait()
		require.Empty(t, p.rec.take())
		require.Equal(t, "10", p.coll.State().RV)
		require.EqualValues(t, 1, p.coll.State().Count)
		p.list(t, store.ReasonExpired, "12", obj("b", "2", 11))
		synctest.Wait()
		require.Equal(t, []string{"delete unknown a@9", "add b@11"}, p.rec.take())
	})
}

// A first list that never completes leaves the collection not synced.
func TestAbortedFirstListIsNotSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, memoryCollection(t))
		require.NoError(t, p.queue.BeginReplace(t.Context(), deltafifo.Replace{}))
		p.queue.AbortReplace()
		synctest.Wait()
		require.False(t, p.coll.State().Synced)
		p.list(t, store.ReasonInitial, "5")
		synctest.Wait()
		require.True(t, p.coll.State().Synced)
		require.Zero(t, p.coll.State().Count)
	})
}

// failing is a collection whose writes fail while it is set to.
type failing struct {
	store.Collection
	mu  sync.Mutex
	err error
}

func (f *failing) set(err error) { f.mu.Lock(); f.err = err; f.mu.Unlock() }

func (f *failing) Apply(b store.Batch) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Collection.Apply(b)
}

// On a full disk the loop keeps the batch and stores it when there is room.
func TestStoreFailureIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{Collection: memoryCollection(t)}
		p := start(t, f)
		p.list(t, store.ReasonInitial, "10")
		synctest.Wait()
		f.set(errors.New("no space left on device"))
		require.NoError(t, p.queue.Add(obj("a", "1", 11)))
		synctest.Wait()
		require.NoError(t, p.queue.Add(obj("b", "1", 12)))
		require.Equal(t, "10", p.coll.State().RV)
		require.Empty(t, p.rec.take(), "sinks get only stored changes")
		f.set(nil)
		require.NoError(t, p.queue.BeginReplace(t.Context(), deltafifo.Replace{})) // waits for the loop
		require.Equal(t, "12", p.coll.State().RV)
		p.queue.AbortReplace()
		synctest.Wait()
		require.Equal(t, []string{"add a@11", "add b@12"}, p.rec.take())
	})
}

// counted is a collection that counts reads and keeps the newest batch.
type counted struct {
	store.Collection
	reads map[string]int // by key
	batch store.Batch
}

type countedLookup struct {
	store.Lookup
	c *counted
}

// countedCollection is a synced collection of objects.
func countedCollection(t *testing.T, objects ...*object.Object) *counted {
	coll := &counted{Collection: memoryCollection(t), reads: map[string]int{}}
	r, err := coll.Replace()
	require.NoError(t, err)
	for _, o := range objects {
		require.NoError(t, r.Apply([]store.Change{storetest.Put(o)}))
	}
	require.NoError(t, r.Commit(store.Checkpoint{RV: "10"}))
	return coll
}

func (c *counted) Lookup() store.Lookup { return countedLookup{c.Collection.Lookup(), c} }

func (l countedLookup) Header(key string) (store.Header, error) {
	l.c.reads[key]++
	return l.Lookup.Header(key)
}

func (l countedLookup) Get(key string) (*object.Object, error) {
	l.c.reads[key]++
	return l.Lookup.Get(key)
}

func (c *counted) Apply(b store.Batch) error {
	c.batch = b
	return c.Collection.Apply(b)
}

// The old object of an event is read once, and the store gets what was read.
func TestOldObjectIsReadOnce(t *testing.T) {
	for _, transitions := range []bool{true, false} {
		t.Run(fmt.Sprintf("a sink wants transitions: %v", transitions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coll := countedCollection(t, obj("a", "1", 3))
				p := startWith(t, coll, func(o *pipeline.LoopOptions) {
					if !transitions {
						o.Sinks = nil
					}
				})
				synctest.Wait()
				clear(coll.reads) // of the start
				require.NoError(t, p.queue.Update(obj("a", "1", 11)))
				synctest.Wait()
				require.Equal(t, map[string]int{"ns/a": 1}, coll.reads)
				require.IsType(t, countedLookup{}, coll.batch.Read)
			})
		})
	}
}

// A listed item is looked up once, whether it has changed or not, and the loop compares it with what
// the queue has found.
func TestListedItemIsLookedUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coll := countedCollection(t, obj("a", "1", 3), obj("b", "2", 4))
		p := startWith(t, coll, func(o *pipeline.LoopOptions) { o.Sinks = o.Sinks[1:] }) // the counters alone
		synctest.Wait()
		clear(coll.reads)
		p.list(t, store.ReasonExpired, "20", obj("a", "1", 3), obj("b", "2", 14), obj("c", "3", 15))
		synctest.Wait()
		require.Equal(t, 1, coll.reads["ns/a"])
		require.Equal(t, 1, coll.reads["ns/b"])
		require.Equal(t, store.Counts{Added: 1, Updated: 1}, p.stats.Counters().Counts)
	})
}

// A loop treats events under the stored resourceVersion as replays unless Unversioned is set.
func TestLoopReplayOrUnversioned(t *testing.T) {
	for _, unversioned := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := startWith(t, memoryCollection(t), func(o *pipeline.LoopOptions) {
				o.Unversioned = func() bool { return unversioned }
			})
			require.NoError(t, p.queue.Add(obj("a", "1", 5)))
			synctest.Wait()
			require.NoError(t, p.queue.Update(obj("a", "2", 5)))
			synctest.Wait()
			h, err := p.coll.Lookup().Header("ns/a")
			require.NoError(t, err)
			require.Equal(t, unversioned, h.UID == "2")
		})
	}
}

// TestModel runs a server's history through queue, loop and a durable store with a crash (the file
// as of the last commit) at any step, and resumes from the stored checkpoint. The stored state is
// always the server's at exactly the checkpoint, and after a resume it reaches the server's newest
// state.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir := rapidDir(t)
		path := filepath.Join(dir, "cache.db")
		keys := []string{"a", "b", "c", "d"}
		states := []map[string]string{{}} // states[rv] is key → RV at that resourceVersion
		next := func(t *rapid.T) (key string, deleted bool) {
			key = rapid.SampledFrom(keys).Draw(t, "key")
			s := maps.Clone(states[len(states)-1])
			_, exists := s[key]
			if deleted = exists && rapid.IntRange(0, 2).Draw(t, "delete") == 0; deleted {
				delete(s, key)
			} else {
				s[key] = strconv.Itoa(len(states))
			}
			states = append(states, s)
			return key, deleted
		}
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			db, err := bolt.Open(path, bolt.Options{})
			require.NoError(t, err)
			coll, err := db.Open(storetest.Info("test"))
			require.NoError(t, err)
			checkStored(t, coll, states)
			q := deltafifo.New(deltafifo.Options{KnownObjects: pipeline.KnownObjects{Collection: coll}})
			q.Start(coll.State().RV)
			loop := pipeline.NewLoop(pipeline.LoopOptions{Queue: q, Collection: coll})
			done := make(chan error, 1)
			ctx, crash := context.WithCancel(context.Background())
			go func() { done <- loop.Run(ctx) }()

			at := 0
			if coll.State().Synced {
				at, err = strconv.Atoi(coll.State().RV)
				require.NoError(t, err)
			}
			if !coll.State().Synced || rapid.IntRange(0, 3).Draw(t, "expired") == 0 {
				at = len(states) - 1
				require.NoError(t, q.BeginReplace(context.Background(), deltafifo.Replace{}))
				for key, version := range states[at] {
					n, _ := strconv.Atoi(version)
					require.NoError(t, q.ReplaceItem(obj(key, "u", n)))
				}
				require.NoError(t, q.EndReplace(strconv.Itoa(at)))
			}
			for range rapid.IntRange(0, 20).Draw(t, "events") {
				next(t)
			}
			for n := at + 1; n < len(states); n++ { // the watch replays from the checkpoint
				for _, key := range keys {
					was, is := states[n-1][key], states[n][key]
					switch {
					case is == "" && was != "":
						require.NoError(t, q.Delete(obj(key, "u", n)))
					case is != was:
						require.NoError(t, q.Update(obj(key, "u", n)))
					}
				}
			}
			if rapid.Bool().Draw(t, "crash") {
				crash()
				<-done
			} else {
				q.Close()
				require.NoError(t, <-done)
				require.Equal(t, strconv.Itoa(len(states)-1), coll.State().RV)
			}
			crash()
			checkStored(t, coll, states)
			require.NoError(t, db.Close())
		}
	})
}

// checkStored compares a collection with the server's state at its checkpoint.
func checkStored(t *rapid.T, coll store.Collection, states []map[string]string) {
	state := coll.State()
	if !state.Synced {
		return
	}
	at, err := strconv.Atoi(state.RV)
	require.NoError(t, err)
	v, err := coll.View()
	require.NoError(t, err)
	defer v.Close()
	got := map[string]string{}
	for o, err := range v.Objects("", "") {
		require.NoError(t, err)
		got[o.GetName()] = o.GetResourceVersion()
	}
	require.Equal(t, states[at], got, "checkpoint %d", at)
}
