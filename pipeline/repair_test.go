package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/deltafifo"
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

// corruptDB has the collection test with a@3 and b@5 at checkpoint 10; the record of a is corrupt.
func corruptDB(t *testing.T) store.DB {
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
	return db
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

// repairStory is a story of a corrupt record.
type repairStory struct {
	name  string
	steps []func(*deltafifo.Queue) error
	a     string // a's RV afterwards; empty if absent
	rv    string // of the checkpoint
	calls []string

	refused bool // the repair
}

// TestRepair replaces a corrupt record by the server's state, unless an event makes the repair
// obsolete.
func TestRepair(t *testing.T) {
	a := func(rv int) *object.Object { return obj("a", "1", rv) }
	type queue = *deltafifo.Queue
	// The answer was read at the checkpoint 10, so it is refused once anything has happened since.
	repair := func(o *object.Object) func(queue) error {
		return func(q queue) error { return q.Correct("ns/a", o, "10") }
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
	for _, x := range []repairStory{
		{"as it was", []func(queue) error{repair(a(3))}, "3", "10", []string{"update a@? a@3"}, false},
		{"newer", []func(queue) error{repair(a(20))}, "20", "10", []string{"update a@? a@20"}, false},
		{"gone", []func(queue) error{repair(nil)}, "", "10", []string{"delete unknown a@?"}, false},
		{"replay after it", []func(queue) error{repair(a(20)), update(11), remove(12), update(20)}, "20", "20", []string{"update a@? a@20"}, false},
		{"change after it", []func(queue) error{repair(a(20)), update(21)}, "21", "21", []string{"update a@? a@20", "update a@20 a@21"}, false},
		{"deleted after it", []func(queue) error{repair(a(20)), remove(21)}, "", "21", []string{"update a@? a@20", "delete a@21"}, false},
		{"gone and made again", []func(queue) error{repair(nil), remove(11), update(12)}, "12", "12", []string{"delete unknown a@?", "add a@12"}, false},
		{"change before it", []func(queue) error{update(11), repair(a(3))}, "11", "11", []string{"update a@? a@11"}, true},
		{"change before it's gone", []func(queue) error{update(11), repair(nil)}, "11", "11", []string{"update a@? a@11"}, true},
		{"deleted before it", []func(queue) error{remove(11), repair(a(3))}, "", "11", []string{"delete a@11"}, true},
		{"deleted", []func(queue) error{remove(11)}, "", "11", []string{"delete a@11"}, false},
		{"changed", []func(queue) error{update(11)}, "11", "11", []string{"update a@? a@11"}, false},
		{"listed as it was", []func(queue) error{list(a(3))}, "3", "30", []string{"update a@? a@3"}, false},
		{"not listed", []func(queue) error{list()}, "", "30", []string{"delete unknown a@?"}, false},
		{"listed before it", []func(queue) error{list(a(15)), repair(a(3))}, "15", "30", []string{"update a@? a@15"}, true},
	} {
		for _, takes := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("%s, together %v", x.name, takes > 0), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, err := corruptDB(t).Open(storetest.Info("test"))
					require.NoError(t, err)
					testRepair(t, x, c, takes)
				})
			})
		}
	}
}

func testRepair(t *testing.T, x repairStory, coll store.Collection, takes time.Duration) {
	p := startSlow(t, coll, takes)
	synctest.Wait()
	p.rec.take()
	for _, step := range x.steps {
		if err := step(p.queue); !x.refused || !errors.Is(err, deltafifo.ErrChanged) {
			require.NoError(t, err)
		}
		if takes == 0 {
			synctest.Wait()
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	want := map[string]string{"b": "5"}
	if x.a != "" {
		want["a"] = x.a
	}
	require.Equal(t, want, contents(t, coll))
	require.Equal(t, x.rv, coll.State().RV)
	require.EqualValues(t, len(want), coll.State().Count)
	require.Equal(t, x.calls, p.rec.take())
}
