package bolt_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// handClock has timers that never fire: the test begins each flush.
type handClock struct {
	clock.RealClock
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *handClock) AfterFunc(time.Duration, func()) clock.Timer {
	return c.NewTimer(1 << 62)
}

// pass makes a flush due.
func (c *handClock) pass() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(10 * time.Minute)
}

// versionsOf returns the versions of a collection's objects, and its checkpoint.
func versionsOf(t tester, v store.View, err error) map[string]string {
	require.NoError(t, err)
	defer v.Close()
	all := map[string]string{"": v.State().RV}
	for o, err := range v.Objects("", "") {
		require.NoError(t, err)
		all[o.GetName()] = o.GetResourceVersion()
	}
	return all
}

// crashed returns the content of a copy of the file, as after a crash.
func crashed(t tester, path, dir string) map[string]string {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	copied := filepath.Join(dir, "crashed.db")
	require.NoError(t, os.WriteFile(copied, raw, 0o600))
	db, err := bolt.Open(copied, bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	v, err := db.View("a")
	return versionsOf(t, v, err)
}

// Changes go on while a flush is being committed. Until its end a crash leaves the state before or at its begin,
// objects and checkpoint together; a commit that fails loses nothing.
func TestFlush_ChangesBesideCommit(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "cache.db")
		_ = os.Remove(path)
		hand := &handClock{now: time.Now()}
		db, err := bolt.Open(path, bolt.Options{Clock: hand})
		require.NoError(t, err)
		c, err := db.Open(storetest.Info("a"))
		require.NoError(t, err)
		r, err := c.Replace()
		require.NoError(t, err)
		require.NoError(t, r.Commit(goingOn(1)))
		now := map[string]string{"": "1"}
		durable, flight := maps.Clone(now), map[string]string(nil)
		var commit func() error
		var end func(error)
		var result error
		t.Repeat(map[string]func(*rapid.T){
			"apply": func(t *rapid.T) {
				n := version(now) + 1
				name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name")
				change := storetest.Put(storetest.Object("ns", name, "u", fmt.Sprint(n), nil, incompressible(n)))
				if now[name] = fmt.Sprint(n); rapid.Bool().Draw(t, "delete") {
					change = store.Change{Key: "ns/" + name, RV: fmt.Sprint(n)}
					delete(now, name)
				}
				require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{change}, Checkpoint: goingOn(n), Read: c.Lookup()}))
				now[""] = fmt.Sprint(n)
			},
			"begin": func(*rapid.T) {
				if commit == nil && end == nil {
					hand.pass()
					if commit, end = db.BeginFlush(); commit != nil {
						flight = maps.Clone(now)
					}
				}
			},
			"commit": func(t *rapid.T) {
				if commit != nil {
					if rapid.Bool().Draw(t, "fails") {
						result = errors.New("the disk is full")
					} else {
						result = commit()
						require.NoError(t, result)
						durable = flight
					}
					commit = nil
				}
			},
			"end": func(*rapid.T) {
				if commit == nil && end != nil {
					end(result)
					end = nil
				}
			},
			"flush": func(t *rapid.T) {
				if end == nil { // else it waits for the end
					require.NoError(t, db.Flush())
					durable = maps.Clone(now)
				}
			},
			"": func(t *rapid.T) {
				v, err := c.View()
				require.Equal(t, now, versionsOf(t, v, err))
				for name, rv := range now {
					if name != "" {
						o, err := c.Lookup().Get("ns/" + name)
						require.NoError(t, err)
						require.Equal(t, rv, o.GetResourceVersion())
					}
				}
				require.Equal(t, durable, crashed(t, path, dir))
			},
		})
		if end != nil {
			if commit != nil {
				result = commit()
			}
			end(result)
		}
		require.NoError(t, db.Flush())
		require.Equal(t, now, crashed(t, path, dir))
		require.NoError(t, c.Close())
		require.NoError(t, db.Close())
		checkFile(t, path)
		require.Equal(t, now, crashed(t, path, dir))
	})
}

func version(now map[string]string) (n int) {
	_, _ = fmt.Sscan(now[""], &n)
	return n
}

// While a flush is being committed, changes and lookups do not wait for it, but a change that needs a flush of its
// own does, as do Flush and Close.
func TestFlush_WaitsForCommit(t *testing.T) {
	hand := &handClock{now: time.Now()}
	db, path := newDBByHand(t, bolt.Options{Clock: hand})
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, nil, 1)
	apply := func(n int) {
		o := storetest.Object("ns", fmt.Sprint("o-", n), "u", fmt.Sprint(n), nil, incompressible(n))
		require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{storetest.Put(o)}, Checkpoint: goingOn(n)}))
	}
	n := 2
	for ; n < 2000; n++ { // a dictionary is made, which is a commit
		apply(n)
	}
	require.NoError(t, db.Flush())
	apply(n)
	hand.pass()
	commit, end := db.BeginFlush()
	require.NotNil(t, commit)
	for n++; n < 2500; n++ { // far less than a flush
		apply(n)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var order []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	wg.Go(func() {
		for range 20_000 { // more than 1 MiB in all
			apply(n)
			n++
		}
		note("applied")
		assertNoError(t, db.Flush())
		note("flushed")
	})
	require.Eventually(t, func() bool { // it is well on its way, beside the commit
		return version(map[string]string{"": c.State().RV}) > 3000
	}, time.Minute, time.Millisecond)
	note("committing")
	end(commit())
	wg.Wait()
	require.Equal(t, []string{"committing", "applied", "flushed"}, order)
	apply(n)
	hand.pass()
	commit, end = db.BeginFlush()
	require.NotNil(t, commit)
	wg.Go(func() {
		assertNoError(t, c.Close())
		assertNoError(t, db.Close())
		note("closed")
	})
	note("committing")
	end(commit())
	wg.Wait()
	require.Equal(t, []string{"committing", "closed"}, order[3:])
	require.Equal(t, fmt.Sprint(n), crashed(t, path, t.TempDir())[""])
}

func assertNoError(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}
