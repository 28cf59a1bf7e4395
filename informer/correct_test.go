package informer_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// TestCorrect replaces any stored state by the server's. The collection has a@3 and b@5 at the
// checkpoint 10.
func TestCorrect(t *testing.T) {
	for _, x := range []struct {
		name  string
		key   string
		o     *object.Object // nil for absent
		want  map[string]string
		calls []string
	}{
		{"older", "ns/a", obj("a", "1", 2), map[string]string{"a": "2", "b": "5"}, []string{"update a@3 a@2"}},
		{"newer", "ns/a", obj("a", "1", 20), map[string]string{"a": "20", "b": "5"}, []string{"update a@3 a@20"}},
		{"another uid", "ns/a", obj("a", "7", 3), map[string]string{"a": "3", "b": "5"}, []string{"update a@3 a@3"}},
		{"missing", "ns/c", obj("c", "3", 4), map[string]string{"a": "3", "b": "5", "c": "4"}, []string{"add c@4 false"}},
		{"gone", "ns/a", nil, map[string]string{"b": "5"}, []string{"delete unknown a@3"}},
		{"gone already", "ns/c", nil, map[string]string{"a": "3", "b": "5"}, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, memoryCollection(t))
				p.list(t, store.ReasonInitial, "10", obj("a", "1", 3), obj("b", "2", 5))
				synctest.Wait()
				p.rec.take()
				require.NoError(t, p.queue.Correct(x.key, x.o, "10"))
				synctest.Wait()
				require.Equal(t, x.want, contents(t, p.coll))
				require.Equal(t, x.calls, p.rec.take())
				require.Equal(t, "10", p.coll.State().RV)
				require.EqualValues(t, len(x.want), p.coll.State().Count)

				require.NoError(t, p.queue.Delete(obj("b", "2", 11)))
				require.NoError(t, p.queue.Update(obj("a", "1", 25)))
				synctest.Wait()
				require.Equal(t, "25", contents(t, p.coll)["a"], "a later event of the watch is newer")
			})
		})
	}
}

// TestCorrect_ThenEvent compares an event with the correction, not with the wrong version before
// it, also if both are in one batch.
func TestCorrect_ThenEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startLingering(t, memoryCollection(t), time.Second)
		p.list(t, store.ReasonInitial, "10", obj("a", "1", 900))
		time.Sleep(2 * time.Second) // simulated time, for the queue's linger
		require.NoError(t, p.queue.Correct("ns/a", nil, "10"))
		require.NoError(t, p.queue.Add(obj("a", "2", 11)))
		time.Sleep(2 * time.Second)
		require.Equal(t, map[string]string{"a": "11"}, contents(t, p.coll))
	})
}

// TestCorrectModel runs a server's history into a store in which objects are changed behind the
// loop's back, with answers to GETs that are queued at any later time. At each step every other
// object is in a state that the server had at the checkpoint or later: no event is lost to an
// answer that was read before it. Once each key was fetched again, the store has what the server
// has.
func TestCorrectModel(t *testing.T) {
	for _, s := range []struct {
		name string
		open func(*rapid.T) store.DB
	}{
		{"memory", func(*rapid.T) store.DB { return memory.New() }},
		{"durable", func(t *rapid.T) store.DB {
			db, err := bolt.Open(filepath.Join(rapidDir(t), "cache.db"), bolt.Options{})
			require.NoError(t, err)
			return db
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { correctModel(t, s.open(t)) })
		})
	}
}

func correctModel(t *rapid.T, db store.DB) {
	coll, err := db.Open(storetest.Info("test"))
	require.NoError(t, err)
	q := deltafifo.New(deltafifo.Options{KnownObjects: informer.KnownObjects{Collection: coll}})
	loop := informer.New(informer.Options{Name: "test", Queue: q, Collection: coll})
	done := make(chan error, 1)
	go func() { done <- loop.Run(context.Background()) }()

	keys := []string{"a", "b", "c"}
	states := []map[string]string{{}, {"a": "1"}} // states[rv] is key → RV
	at := len(states) - 1                         // what the watch has delivered
	type answer struct {
		o  *object.Object
		at string // the checkpoint before the request
	}
	answers := map[string]answer{} // of GETs, not yet queued
	wrong := map[string]bool{}
	version := func(key, rv string) *object.Object {
		if rv == "" {
			return nil
		}
		n, err := strconv.Atoi(rv)
		require.NoError(t, err)
		return obj(key, "u", n)
	}
	newest := func(key string) *object.Object { return version(key, states[len(states)-1][key]) }
	settle := func() { // returns once the loop has applied all that was queued
		for range 2 {
			require.NoError(t, q.BeginReplace(context.Background(), deltafifo.Replace{}))
			q.AbortReplace()
		}
	}
	deliver := func() {
		if at+1 >= len(states) {
			return
		}
		at++
		for _, key := range keys {
			was, is := states[at-1][key], states[at][key]
			switch {
			case is == "" && was != "":
				require.NoError(t, q.Delete(obj(key, "u", at)))
			case is != was:
				require.NoError(t, q.Update(obj(key, "u", at)))
			}
		}
	}
	correct := func(key string) {
		x, ok := answers[key]
		if !ok {
			return
		}
		delete(answers, key)
		switch err := q.Correct("ns/"+key, x.o, x.at); {
		case err == nil:
			delete(wrong, key)
		case !errors.Is(err, deltafifo.ErrReplacing):
			require.ErrorIs(t, err, deltafifo.ErrChanged)
		}
	}
	require.NoError(t, q.BeginReplace(context.Background(), deltafifo.Replace{}))
	require.NoError(t, q.ReplaceItem(obj("a", "u", 1)))
	require.NoError(t, q.EndReplace("1"))
	draw := func(t *rapid.T) string { return rapid.SampledFrom(keys).Draw(t, "key") }
	t.Repeat(map[string]func(*rapid.T){
		"server": func(t *rapid.T) {
			key, s := draw(t), maps.Clone(states[len(states)-1])
			if s[key] != "" && rapid.Bool().Draw(t, "delete") {
				delete(s, key)
			} else {
				s[key] = strconv.Itoa(len(states))
			}
			states = append(states, s)
		},
		"event":   func(*rapid.T) { deliver() },
		"get":     func(t *rapid.T) { key := draw(t); answers[key] = answer{newest(key), coll.State().RV} },
		"correct": func(t *rapid.T) { correct(draw(t)) },
		"tamper": func(t *rapid.T) {
			settle()
			key := draw(t)
			bad := rapid.SampledFrom([]string{"", "1", strconv.Itoa(at + 2)}).Draw(t, "version")
			require.NoError(t, coll.Apply(store.Batch{
				Changes: []store.Change{{Key: "ns/" + key, Object: version(key, bad), RV: "1"}}, Checkpoint: coll.State().Checkpoint,
			}))
			wrong[key] = true
		},
		"": func(t *rapid.T) {
			if !rapid.Bool().Draw(t, "settle") {
				return
			}
			settle()
			checkpoint, err := strconv.Atoi(coll.State().RV)
			require.NoError(t, err)
			got := contents(t, coll)
			for _, key := range keys {
				var possible []string
				for _, s := range states[checkpoint:] {
					possible = append(possible, s[key])
				}
				require.True(t, wrong[key] || slices.Contains(possible, got[key]), "%s is %q at checkpoint %d, expected one of %q", key, got[key], checkpoint, possible)
			}
		},
	})
	for at+1 < len(states) {
		deliver()
	}
	settle()
	for _, key := range keys {
		err := deltafifo.ErrReplacing // until the loop has taken the end of settle's list
		for errors.Is(err, deltafifo.ErrReplacing) {
			runtime.Gosched()
			err = q.Correct("ns/"+key, newest(key), coll.State().RV)
		}
		require.NoError(t, err)
	}
	settle()
	require.Equal(t, states[len(states)-1], contents(t, coll))
	q.Close()
	require.NoError(t, <-done)
	require.NoError(t, db.Close())
}
