package pipeline_test

import (
	"context"
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
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
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
		{"missing", "ns/c", obj("c", "3", 4), map[string]string{"a": "3", "b": "5", "c": "4"}, []string{"add c@4"}},
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
		p := startSlow(t, memoryCollection(t), time.Second)
		p.list(t, store.ReasonInitial, "10", obj("a", "1", 900))
		time.Sleep(time.Minute)
		p.queue.Flush() // keeps the consumer busy
		synctest.Wait()
		require.NoError(t, p.queue.Correct("ns/a", nil, "10"))
		require.NoError(t, p.queue.Add(obj("a", "2", 11)))
		time.Sleep(time.Minute)
		require.Equal(t, map[string]string{"a": "11"}, contents(t, p.coll))
	})
}

// TestCorrectModel runs a server's history into a store in which objects are changed behind the
// loop's back and, in a file, become corrupt, with answers to GETs that are queued at any later
// time. At each step every other object is in a state that the server had at the checkpoint or
// later: no event is lost to an answer that was read before it. Once each key was fetched again, the
// store has what the server has.
func TestCorrectModel(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			db := memory.New()
			correctModel(t, func() store.DB { return db }, "")
		})
	})
	t.Run("durable", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			path := filepath.Join(rapidDir(t), "cache.db")
			correctModel(t, func() store.DB {
				db, err := bolt.Open(path, bolt.Options{})
				require.NoError(t, err)
				return db
			}, path)
		})
	})
}

// getAnswer is the server's answer to a GET.
type getAnswer struct {
	o  *object.Object // nil for none
	at string         // the checkpoint before the request
}

// serverModel is a server's history of some objects, and a collection that follows it.
type serverModel struct {
	t       *rapid.T
	db      store.DB
	coll    store.Collection
	queue   *deltafifo.Queue
	done    chan error
	keys    []string
	states  []map[string]string  // states[rv] is key → RV
	at      int                  // what the watch has delivered
	answers map[string]getAnswer // not yet queued
	wrong   map[string]bool      // keys that were changed behind the loop's back
}

func (m *serverModel) start(db store.DB) {
	m.db = db
	coll, err := db.Open(storetest.Info("test"))
	require.NoError(m.t, err)
	m.coll, m.queue = coll, deltafifo.New(deltafifo.Options{KnownObjects: pipeline.KnownObjects{Collection: coll}})
	m.queue.Start(coll.State().RV)
	loop, done := pipeline.NewLoop(pipeline.LoopOptions{Queue: m.queue, Collection: coll}), make(chan error, 1)
	m.done = done
	go func() { done <- loop.Run(context.Background()) }()
	clear(m.answers)
}

func (m *serverModel) stop() {
	m.queue.Close()
	require.NoError(m.t, <-m.done)
	if _, durable := m.db.(*bolt.DB); durable {
		require.NoError(m.t, m.db.Close())
	}
}

func (m *serverModel) newest() map[string]string { return m.states[len(m.states)-1] }

// version returns an object at a resourceVersion, nil for none.
func (m *serverModel) version(key, rv string) *object.Object {
	if rv == "" {
		return nil
	}
	n, err := strconv.Atoi(rv)
	require.NoError(m.t, err)
	return obj(key, "u", n)
}

// change creates, updates or deletes an object at the server.
func (m *serverModel) change(key string, remove bool) {
	s := maps.Clone(m.newest())
	if s[key] != "" && remove {
		delete(s, key)
	} else {
		s[key] = strconv.Itoa(len(m.states))
	}
	m.states = append(m.states, s)
}

// deliver queues the next event, and reports whether there was one.
func (m *serverModel) deliver() bool {
	if m.at+1 >= len(m.states) {
		return false
	}
	m.at++
	for _, key := range m.keys {
		was, is := m.states[m.at-1][key], m.states[m.at][key]
		switch {
		case is == "" && was != "":
			require.NoError(m.t, m.queue.Delete(obj(key, "u", m.at)))
		case is != was:
			require.NoError(m.t, m.queue.Update(obj(key, "u", m.at)))
		}
	}
	return true
}

func (m *serverModel) list() {
	m.at = len(m.states) - 1
	require.NoError(m.t, m.queue.BeginReplace(context.Background(), deltafifo.Replace{}))
	for key, rv := range m.newest() {
		require.NoError(m.t, m.queue.ReplaceItem(m.version(key, rv)))
	}
	require.NoError(m.t, m.queue.EndReplace(strconv.Itoa(m.at)))
}

func (m *serverModel) get(key string) {
	rv := m.coll.State().RV
	m.answers[key] = getAnswer{m.version(key, m.newest()[key]), rv}
}

// correct queues the answer for a key, if there is one, and reports whether it was taken.
func (m *serverModel) correct(key string) bool {
	x, ok := m.answers[key]
	if !ok {
		return false
	}
	delete(m.answers, key)
	err := m.queue.Correct("ns/"+key, x.o, x.at)
	if err == nil {
		delete(m.wrong, key)
		return true
	}
	require.ErrorIs(m.t, err, deltafifo.ErrChanged)
	return false
}

// settle returns once the loop has applied all that was queued.
func (m *serverModel) settle() {
	for range 2 {
		require.NoError(m.t, m.queue.BeginReplace(context.Background(), deltafifo.Replace{}))
		m.queue.AbortReplace()
	}
}

// correctModel runs the model over the stores that open returns: each time the same one, in a file
// at path or, if path is empty, in memory.
func correctModel(t *rapid.T, open func() store.DB, path string) {
	m := &serverModel{
		t: t, keys: []string{"a", "b", "c"}, states: []map[string]string{{}, {"a": "1"}},
		answers: map[string]getAnswer{}, wrong: map[string]bool{},
	}
	m.start(open())
	defer m.stop() // rapid ends a run whose data it can't use with a panic
	m.list()
	draw := func(t *rapid.T) string { return rapid.SampledFrom(m.keys).Draw(t, "key") }
	actions := map[string]func(*rapid.T){
		"server":  func(t *rapid.T) { m.change(draw(t), rapid.Bool().Draw(t, "delete")) },
		"event":   func(*rapid.T) { m.deliver() },
		"get":     func(t *rapid.T) { m.get(draw(t)) },
		"correct": func(t *rapid.T) { m.correct(draw(t)) },
		"relist": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "expired") == 0 {
				m.list()
			}
		},
		"tamper": func(t *rapid.T) {
			m.settle()
			key := draw(t)
			bad := rapid.SampledFrom([]string{"", "1", strconv.Itoa(m.at + 2)}).Draw(t, "version")
			require.NoError(t, m.coll.Apply(store.Batch{
				Changes: []store.Change{{Key: "ns/" + key, Object: m.version(key, bad), RV: "1"}}, Checkpoint: m.coll.State().Checkpoint,
			}))
			m.wrong[key] = true
		},
		"": func(t *rapid.T) {
			if !rapid.Bool().Draw(t, "settle") {
				return
			}
			m.settle()
			checkpoint, err := strconv.Atoi(m.coll.State().RV)
			require.NoError(t, err)
			got := contents(t, m.coll)
			for _, key := range m.keys {
				possible := []string{"corrupt"}
				for _, s := range m.states[checkpoint:] {
					possible = append(possible, s[key])
				}
				require.True(t, m.wrong[key] || slices.Contains(possible, got[key]), "%s is %q at checkpoint %d, expected one of %q", key, got[key], checkpoint, possible)
			}
		},
	}
	if path != "" {
		actions["damage"] = func(t *rapid.T) {
			key := draw(t)
			m.stop()
			damage(t, path, "ns/"+key)
			m.start(open())
		}
	}
	t.Repeat(actions)
	for m.deliver() {
	}
	m.settle()
	for _, key := range m.keys {
		for m.get(key); !m.correct(key); m.get(key) { // until the loop has taken the end of settle's list
			runtime.Gosched()
		}
	}
	m.settle()
	require.Equal(t, m.newest(), contents(t, m.coll))
}
