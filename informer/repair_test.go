package informer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// damage changes the stored record of a key, if there is one.
func damage(t require.TestingT, path, key string) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("c")).Bucket([]byte("test"))
		return c.ForEachBucket(func(gen []byte) error {
			objects := c.Bucket(gen).Bucket([]byte("objects"))
			record := slices.Clone(objects.Get([]byte(key)))
			if len(record) == 0 {
				return nil
			}
			record[len(record)-1] ^= 1
			return objects.Put([]byte(key), record)
		})
	}))
	require.NoError(t, db.Close())
}

// corruptCollection holds a@3 and b@5 at checkpoint 10; the record of a is corrupt.
func corruptCollection(t *testing.T) store.Collection {
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	c, err := db.Open(storetest.Info("test"))
	require.NoError(t, err)
	r, err := c.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply([]store.Change{storetest.Put(obj("a", "1", 3)), storetest.Put(obj("b", "2", 5))}))
	require.NoError(t, r.Commit(store.Checkpoint{RV: "10"}))
	require.NoError(t, db.Close())
	damage(t, path, "ns/a")
	db, err = bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c, err = db.Open(storetest.Info("test"))
	require.NoError(t, err)
	return c
}

// contents returns key → RV, "corrupt" for a record that can't be read.
func contents(t require.TestingT, c store.Collection) map[string]string {
	v, err := c.View()
	require.NoError(t, err)
	defer v.Close()
	got := map[string]string{}
	for o, err := range v.Objects("", "") {
		var damage *store.CorruptionError
		if errors.As(err, &damage) {
			got[strings.TrimPrefix(damage.Key, "ns/")] = "corrupt"
			continue
		}
		require.NoError(t, err)
		got[o.GetName()] = o.GetResourceVersion()
	}
	return got
}

// TestRepair replaces a corrupt record by the server's state, unless an event makes the repair
// obsolete.
func TestRepair(t *testing.T) {
	a := func(rv int) *object.Object { return obj("a", "1", rv) }
	type queue = *deltafifo.Queue
	repair := func(o *object.Object) func(queue) error {
		return func(q queue) error { return q.Repair("ns/a", o) }
	}
	update := func(rv int) func(queue) error { return func(q queue) error { return q.Update(a(rv)) } }
	remove := func(rv int) func(queue) error { return func(q queue) error { return q.Delete(a(rv)) } }
	list := func(objects ...*object.Object) func(queue) error {
		return func(q queue) error {
			if err := q.BeginReplace(context.Background(), deltafifo.Replace{Reason: "expired"}); err != nil {
				return err
			}
			for _, o := range append(objects, obj("b", "2", 5)) {
				if err := q.ReplaceItem(o); err != nil {
					return err
				}
			}
			return q.EndReplace("30")
		}
	}
	for name, x := range map[string]struct {
		steps []func(queue) error
		a     string // a's RV afterwards; empty if absent
		rv    string // of the checkpoint
		calls []string
	}{
		"as it was":               {[]func(queue) error{repair(a(3))}, "3", "10", []string{"add a@3 false"}},
		"newer":                   {[]func(queue) error{repair(a(20))}, "20", "10", []string{"add a@20 false"}},
		"gone":                    {[]func(queue) error{repair(nil)}, "", "10", []string{"delete ns/a@unknown"}},
		"replay after it":         {[]func(queue) error{repair(a(20)), update(11), remove(12), update(20)}, "20", "20", []string{"add a@20 false"}},
		"change after it":         {[]func(queue) error{repair(a(20)), update(21)}, "21", "21", []string{"add a@20 false", "update a@20 a@21"}},
		"deleted after it":        {[]func(queue) error{repair(a(20)), remove(21)}, "", "21", []string{"add a@20 false", "delete a@21"}},
		"gone and made again":     {[]func(queue) error{repair(nil), remove(11), update(12)}, "12", "12", []string{"delete ns/a@unknown", "add a@12 false"}},
		"change before it":        {[]func(queue) error{update(11), repair(a(3))}, "11", "11", []string{"add a@11 false"}},
		"change before it's gone": {[]func(queue) error{update(11), repair(nil)}, "11", "11", []string{"add a@11 false"}},
		"deleted before it":       {[]func(queue) error{remove(11), repair(a(3))}, "", "11", []string{"delete a@11"}},
		"deleted":                 {[]func(queue) error{remove(11)}, "", "11", []string{"delete a@11"}},
		"changed":                 {[]func(queue) error{update(11)}, "11", "11", []string{"add a@11 false"}},
		"listed as it was":        {[]func(queue) error{list(a(3))}, "3", "30", []string{"add a@3 false"}},
		"not listed":              {[]func(queue) error{list()}, "", "30", []string{"delete ns/a@unknown"}},
		"listed before it":        {[]func(queue) error{list(a(15)), repair(a(3))}, "15", "30", []string{"add a@15 false"}},
	} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, together %v", name, together), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					coll := corruptCollection(t)
					linger := time.Duration(0)
					if together {
						linger = time.Second
					}
					p := startLingering(t, coll, linger)
					synctest.Wait()
					p.rec.take()
					for _, step := range x.steps {
						if err := step(p.queue); errors.Is(err, deltafifo.ErrReplacing) && name == "listed before it" {
							continue // the repair came too early, and would have changed nothing
						} else if err != nil {
							t.Fatal(err)
						}
						if !together {
							synctest.Wait()
						}
					}
					time.Sleep(2 * time.Second) // simulated time, for the queue's linger
					synctest.Wait()
					want := map[string]string{"b": "5"}
					if x.a != "" {
						want["a"] = x.a
					}
					require.Equal(t, want, contents(t, coll))
					require.Equal(t, x.rv, coll.State().RV)
					require.EqualValues(t, len(want), coll.State().Count)
					require.Equal(t, x.calls, p.rec.take())
				})
			})
		}
	}
}

// TestRepairModel runs a server's history into a store whose records become corrupt, with answers
// to GETs that arrive at any later time. At each step every record is in a state that the server
// had at the checkpoint or later; the final state is the server's newest.
func TestRepairModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(rapidDir(t), "cache.db")
		keys := []string{"a", "b", "c"}
		states := []map[string]string{{}} // states[rv] is key → RV
		state := func() map[string]string { return states[len(states)-1] }
		at := 0                                // what the watch has delivered
		answers := map[string]*object.Object{} // of GETs, not yet delivered
		var db *bolt.DB
		var coll store.Collection
		var q *deltafifo.Queue
		var done chan error
		open := func() {
			var err error
			db, err = bolt.Open(path, bolt.Options{})
			require.NoError(t, err)
			coll, err = db.Open(storetest.Info("test"))
			require.NoError(t, err)
			q = deltafifo.New(deltafifo.Options{KnownObjects: informer.KnownObjects{Collection: coll}})
			q.Start(coll.State().RV)
			loop := informer.New(informer.Options{Name: "test", Queue: q, Collection: coll})
			done = make(chan error, 1)
			go func() { done <- loop.Run(context.Background()) }()
		}
		closeAll := func() {
			q.Close()
			require.NoError(t, <-done)
			require.NoError(t, db.Close())
			clear(answers)
		}
		list := func() {
			at = len(states) - 1
			require.NoError(t, q.BeginReplace(context.Background(), deltafifo.Replace{}))
			for key, version := range state() {
				n, _ := strconv.Atoi(version)
				require.NoError(t, q.ReplaceItem(obj(key, "u", n)))
			}
			require.NoError(t, q.EndReplace(strconv.Itoa(at)))
		}
		// settle waits until the loop has applied all that was queued.
		settle := func() {
			require.NoError(t, q.BeginReplace(context.Background(), deltafifo.Replace{}))
			q.AbortReplace()
			require.NoError(t, q.BeginReplace(context.Background(), deltafifo.Replace{}))
			q.AbortReplace()
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
		get := func(key string) {
			answers[key] = nil
			if version := state()[key]; version != "" {
				n, _ := strconv.Atoi(version)
				answers[key] = obj(key, "u", n)
			}
		}
		answer := func(key string) {
			if o, ok := answers[key]; ok {
				delete(answers, key)
				if err := q.Repair("ns/"+key, o); !errors.Is(err, deltafifo.ErrReplacing) {
					require.NoError(t, err)
				}
			}
		}
		open()
		list()
		t.Repeat(map[string]func(*rapid.T){
			"server": func(t *rapid.T) {
				key, s := rapid.SampledFrom(keys).Draw(t, "key"), maps.Clone(state())
				if s[key] != "" && rapid.Bool().Draw(t, "delete") {
					delete(s, key)
				} else {
					s[key] = strconv.Itoa(len(states))
				}
				states = append(states, s)
			},
			"event":  func(*rapid.T) { deliver() },
			"get":    func(t *rapid.T) { get(rapid.SampledFrom(keys).Draw(t, "key")) },
			"answer": func(t *rapid.T) { answer(rapid.SampledFrom(keys).Draw(t, "key")) },
			"damage": func(t *rapid.T) {
				closeAll()
				damage(t, path, "ns/"+rapid.SampledFrom(keys).Draw(t, "key"))
				open()
			},
			"relist": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "expired") == 0 {
					list()
				}
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
					possible := []string{"corrupt"}
					for _, s := range states[checkpoint:] {
						possible = append(possible, s[key])
					}
					require.Contains(t, possible, got[key], "%s at checkpoint %d", key, checkpoint)
				}
			},
		})
		for at+1 < len(states) {
			deliver()
		}
		closeAll() // once everything is stored
		open()
		for key, version := range contents(t, coll) {
			if version == "corrupt" {
				get(key)
				answer(key)
			}
		}
		closeAll()
		open()
		require.Equal(t, state(), contents(t, coll))
		closeAll()
	})
}
