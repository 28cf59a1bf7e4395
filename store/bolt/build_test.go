package bolt_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

var appIndex = store.LabelIndex("app", "app")

// filled returns a synced collection of n objects without indexes, and its model.
func filled(t *testing.T, db *bolt.DB, n int) (store.Collection, *storetest.Model) {
	c := openCollection(t, db, storetest.Info("pods"))
	model := storetest.NewModel(storetest.Info("pods"))
	var changes []store.Change
	for i := range n {
		changes = append(changes, storetest.Put(sampleObject(i, i+1)))
	}
	replaceAll(t, c, changes, n+1)
	model.Replace(storetest.Info("pods"), changes, storetest.Checkpoint(n+1))
	return c, model
}

// reopen opens the collection and its model with other indexes, for another owner.
func reopen(t *testing.T, db *bolt.DB, m *storetest.Model, indexes ...store.Index) store.Collection {
	db.TakeFromOwner("pods")
	c := openCollection(t, db, storetest.Info("pods"), indexes...)
	m.Open(storetest.Info("pods"), indexes...)
	return c
}

func viewOf(t *testing.T, db *bolt.DB) store.View {
	v := view(t, db, "pods")
	t.Cleanup(v.Close)
	return v
}

// sameAs requires that a view has the content of the model, and that these indexes are being built.
func sameAs(t *testing.T, db *bolt.DB, m *storetest.Model, building ...string) {
	t.Helper()
	v := viewOf(t, db)
	defer v.Close()
	require.Equal(t, building, v.Building())
	m.Equal(t, v)
}

// asKilled copies a file as a kill would leave it.
func asKilled(t *testing.T, path string) string {
	raw := readFile(t, path)
	to := filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, os.WriteFile(to, raw, 0o600))
	return to
}

// steps takes steps of so many objects until all builds are done, and returns their number.
func steps(t *testing.T, db *bolt.DB, objects int) (n int) {
	for more := true; more; n++ {
		require.Less(t, n, 1000)
		var err error
		more, err = db.BuildStep(objects)
		require.NoError(t, err)
	}
	return n
}

// An index is built in steps of a number of objects, while the collection is written, and is
// complete from one view to the next.
func TestIndexIsBuiltInSteps(t *testing.T) {
	db, path := newDBByHand(t, bolt.Options{FlushInterval: time.Hour})
	_, model := filled(t, db, 40)
	c := reopen(t, db, model, appIndex)
	apply := func(b store.Batch) {
		require.NoError(t, c.Apply(b))
		model.Apply(b)
	}
	moved := func(i, rv int) *object.Object {
		o := sampleObject(i, rv)
		return storetest.Object(o.GetNamespace(), o.GetName(), "u", fmt.Sprint(rv), map[string]string{"app": "moved"}, "x")
	}
	before, old := model.Clone(), viewOf(t, db)
	sameAs(t, db, model, "app")
	for i := range 3 {
		more, err := db.BuildStep(10)
		require.NoError(t, err)
		require.True(t, more)
		// In front of and behind the position of the build: a changed, a deleted and a new object.
		apply(store.Batch{Checkpoint: storetest.Checkpoint(100 + i), Changes: []store.Change{
			storetest.Put(sampleObject(i, 50+i)), storetest.Put(moved(39-i, 60+i)),
			storetest.Put(storetest.Object("shop", fmt.Sprint("a-", i), "u", "70", map[string]string{"app": "new"}, "x")),
			storetest.Put(storetest.Object("zoo", fmt.Sprint("z-", i), "u", "80", map[string]string{"app": "new"}, "x")),
			storetest.Delete(sampleObject(10+i, 0).Key()), storetest.Delete(sampleObject(30+i, 0).Key()),
		}})
		sameAs(t, db, model, "app")
		if i == 1 {
			require.NoError(t, db.Fold())
		}
		report := checkReport(t, asKilled(t, path), bolt.Keyring{})
		require.Empty(t, report.Problems)
		require.Contains(t, report.Notes, bolt.Problem{Collection: "pods", Reason: "index app is being built"})
	}
	require.Less(t, steps(t, db, 10), 5)
	model.Building = nil
	sameAs(t, db, model)
	before.Equal(t, old)
	require.Equal(t, []string{"app"}, old.Building(), "a view does not change")
	// A crash loses what was not flushed, and the index is that of the objects that are left.
	for range 2 {
		report := checkReport(t, asKilled(t, path), bolt.Keyring{})
		require.Empty(t, report.Problems)
		require.Empty(t, report.Notes)
		require.NoError(t, db.Flush())
	}
}

// Reads of an index that is being built return what they do when it is complete, also if it has
// more entries than are computed in one pass. A program's own index can be read if the collection
// is open with it.
func TestBuilding_ReadsScan(t *testing.T) {
	db, path := newDBByHand(t, bolt.Options{FlushInterval: time.Hour})
	_, model := filled(t, db, 9000)
	reopen(t, db, model, appIndex, mine)
	read := func(v store.View, name string) (entries []store.IndexEntry, keys []string) {
		after := store.IndexEntry{Value: "sensor", Key: "shop/o-50"}
		for _, from := range []store.IndexEntry{{}, after} {
			for e, err := range v.IndexEntries(name, "", from) {
				require.NoError(t, err)
				entries = append(entries, e)
			}
		}
		for k, err := range v.IndexKeys(name, "till", "shop/o-20") {
			require.NoError(t, err)
			keys = append(keys, k)
		}
		return entries, keys
	}
	require.NoError(t, db.Flush())
	copied := asKilled(t, path)
	before := viewOf(t, db)
	require.Equal(t, []string{"app", "mine"}, before.Building())
	entries, keys := read(before, "app")
	require.Greater(t, len(entries), 9000)
	require.NotEmpty(t, keys)
	own, _ := read(before, "mine")
	steps(t, db, 100_000)
	after := viewOf(t, db)
	require.Empty(t, after.Building())
	wantEntries, wantKeys := read(after, "app")
	require.Equal(t, wantEntries, entries)
	require.Equal(t, wantKeys, keys)
	wantOwn, _ := read(after, "mine")
	require.Equal(t, wantOwn, own)

	ro := openDB(t, copied, bolt.Options{ReadOnly: true})
	defer ro.Close()
	v := viewOf(t, ro)
	defer v.Close()
	entries, _ = read(v, "app")
	require.Equal(t, wantEntries, entries)
	for _, err := range v.IndexKeys("mine", "o", "") {
		require.ErrorIs(t, err, store.ErrNoIndex)
	}
}

// A step may end at any key, and ends after a few megabytes.
func TestBuildSteps(t *testing.T) {
	db, _ := newDBByHand(t, bolt.Options{})
	model := storetest.NewModel(storetest.Info("pods"))
	c := reopen(t, db, model)
	var changes []store.Change
	for _, name := range []string{"a", "a-", "aa", "aaa", "ax", "b"} {
		changes = append(changes, storetest.Put(storetest.Object("", name, "u", "1", map[string]string{"app": name}, "x")))
	}
	require.NoError(t, c.Apply(store.Batch{Changes: changes}))
	model.Apply(store.Batch{Changes: changes})
	reopen(t, db, model, appIndex)
	require.Equal(t, len(changes)+1, steps(t, db, 1))
	model.Building = nil
	sameAs(t, db, model)

	db, _ = newDBByHand(t, bolt.Options{})
	model = storetest.NewModel(storetest.Info("pods"))
	c = reopen(t, db, model)
	changes = nil
	for i := range 6 {
		changes = append(changes, storetest.Put(storetest.Object("ns", fmt.Sprint(i), "u", "1", map[string]string{"app": "a"}, strings.Repeat("x", 2<<20))))
	}
	require.NoError(t, c.Apply(store.Batch{Changes: changes}))
	model.Apply(store.Batch{Changes: changes})
	reopen(t, db, model, appIndex)
	require.Equal(t, 4, steps(t, db, 1000), "two objects each, and the end")
	model.Building = nil
	sameAs(t, db, model)
}

// After a crash a build goes on at its stored position. If the index is no longer wanted, all of it
// is removed.
func TestBuildAfterCrash(t *testing.T) {
	opts := bolt.Options{FlushInterval: time.Hour}
	db, path := newDBByHand(t, opts)
	_, model := filled(t, db, 60)
	reopen(t, db, model, appIndex)
	for range 6 {
		_, err := db.BuildStep(5)
		require.NoError(t, err)
	}
	crashed, other := asKilled(t, path), asKilled(t, path)

	ro := openDB(t, crashed, bolt.Options{ReadOnly: true})
	sameAs(t, ro, model, "app")
	require.NoError(t, ro.Close())

	db = openByHand(t, crashed, opts)
	sameAs(t, db, model, "app")
	reopen(t, db, model, appIndex)
	require.LessOrEqual(t, steps(t, db, 5), 9, "30 of 60 objects were filed before")
	model.Building = nil
	sameAs(t, db, model)

	db = openByHand(t, other, opts)
	reopen(t, db, model)
	steps(t, db, 5)
	sameAs(t, db, model)
	require.NoError(t, db.Close())
	require.Empty(t, indexBuckets(t, other))
}

// indexBuckets returns the buckets of indexes and of dropped indexes that a file has.
func indexBuckets(t *testing.T, path string) (names []string) {
	db := openRaw(t, path, &bbolt.Options{ReadOnly: true})
	defer db.Close()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		pods := bucketAt(tx, "c/pods")
		return pods.ForEachBucket(func(gen []byte) error {
			if dropped := pods.Bucket(gen).Bucket([]byte("dropped")); dropped != nil {
				names = append(names, "dropped")
			}
			return pods.Bucket(gen).Bucket([]byte("index")).ForEachBucket(func(name []byte) error {
				names = append(names, string(name))
				return nil
			})
		})
	}))
	return names
}

// If the definition of an index changes, its old entries are gone at once, also after a crash, and
// so is what another version left of an index that it deleted in steps.
func TestDroppedIndexes(t *testing.T) {
	opts := bolt.Options{FlushInterval: time.Hour}
	db, path := newDBByHand(t, opts)
	_, model := filled(t, db, 50)
	reopen(t, db, model, appIndex)
	steps(t, db, 7)
	reopen(t, db, model, store.FieldIndex("app", "data.payload"))
	sameAs(t, db, model, "app")
	reopen(t, db, model)
	require.Empty(t, indexBuckets(t, asKilled(t, path)))
	reopen(t, db, model, appIndex)
	steps(t, db, 7)
	model.Building = nil
	sameAs(t, db, model)
	crashed := asKilled(t, path)
	edit(t, crashed, func(tx *bbolt.Tx) error {
		dropped, err := bucketAt(tx, "c/pods/g1").CreateBucket([]byte("dropped"))
		if err != nil {
			return err
		}
		slot, err := dropped.CreateBucket([]byte("\x00\x00\x00\x00\x00\x00\x00\x01"))
		if err != nil {
			return err
		}
		entries, err := slot.CreateBucket([]byte("app"))
		if err != nil {
			return err
		}
		return entries.Put([]byte("old\x00ns/o"), nil)
	})
	require.Equal(t, []string{"dropped", "app"}, indexBuckets(t, crashed))

	db = openByHand(t, crashed, opts)
	reopen(t, db, model, appIndex)
	sameAs(t, db, model)
	require.Equal(t, []string{"app"}, indexBuckets(t, asKilled(t, crashed)))
	// An index without a definition counts as another definition.
	bare := store.FieldIndex("app", "data.payload")
	bare.Spec = ""
	reopen(t, db, model, bare)
	steps(t, db, 7)
	model.Building = nil
	sameAs(t, db, model)
	require.NoError(t, db.Close())
	require.Equal(t, []string{"app"}, indexBuckets(t, crashed))
	checkFile(t, crashed)
}

// A build waits while a replacement fills a generation, and then reads the current generation,
// whether the replacement was committed or not.
func TestBuildAndReplacement(t *testing.T) {
	for _, commit := range []bool{false, true} {
		t.Run(fmt.Sprint("commit ", commit), func(t *testing.T) {
			db, path := newDB(t, bolt.Options{FlushInterval: time.Hour, ReplaceBudget: 1})
			_, model := filled(t, db, 2000) // several steps
			blocked := make(chan struct{})
			slow := appIndex
			slow.Func = func(o *object.Object) []string { <-blocked; return appIndex.Func(o) }
			c := reopen(t, db, model, slow)
			done := make(chan store.Replacement)
			go func() {
				r, err := c.Replace()
				if err == nil {
					err = r.Apply([]store.Change{storetest.Delete(sampleObject(1, 0).Key()), storetest.Put(sampleObject(2, 9000))})
				}
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			close(blocked)
			r := <-done
			v := viewOf(t, db)
			model.Equal(t, v)
			v.Close()
			if commit {
				require.NoError(t, r.Commit(storetest.Checkpoint(9001)))
				model.Replace(storetest.Info("pods"), []store.Change{storetest.Delete(sampleObject(1, 0).Key()), storetest.Put(sampleObject(2, 9000))}, storetest.Checkpoint(9001))
			} else {
				require.NoError(t, r.Abort())
			}
			db.WaitForBuilds()
			model.Building = nil
			sameAs(t, db, model)
			require.NoError(t, db.Close())
			require.Equal(t, []string{"app"}, indexBuckets(t, path))
		})
	}
}

// An index that is complete stays complete: while a replacement fills a generation, in which builds
// start again, none is completed in the current generation.
func TestBuildWaitsForReplacement(t *testing.T) {
	db, _ := newDBByHand(t, bolt.Options{FlushInterval: time.Hour, ReplaceBudget: 1})
	_, model := filled(t, db, 20)
	payload := store.FieldIndex("payload", "data.payload")
	reopen(t, db, model, payload)
	steps(t, db, 10)
	c := reopen(t, db, model, appIndex, payload)
	_, err := db.BuildStep(10)
	require.NoError(t, err)
	r, err := c.Replace()
	require.NoError(t, err)
	changes := []store.Change{storetest.Put(sampleObject(2, 90))}
	require.NoError(t, r.Apply(changes))
	for range 10 {
		more, err := db.BuildStep(10)
		require.NoError(t, err)
		require.True(t, more)
	}
	sameAs(t, db, model, "app")
	require.NoError(t, r.Commit(storetest.Checkpoint(91)))
	model.Replace(storetest.Info("pods"), changes, storetest.Checkpoint(91))
	sameAs(t, db, model, "app")
	steps(t, db, 10)
	model.Building = nil
	sameAs(t, db, model)
}

// Indexed is closed when the last build of the indexes ends: complete, failed for now, or with its collection.
func TestIndexed(t *testing.T) {
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	db, _ := newDBByHand(t, bolt.Options{FlushInterval: time.Hour})
	_, model := filled(t, db, 20)
	c := reopen(t, db, model, appIndex)
	first := c.Indexed()
	_, err := db.BuildStep(10)
	require.NoError(t, err)
	require.False(t, closed(first))
	payload := store.FieldIndex("payload", "data.payload")
	require.NoError(t, c.Reopen(storetest.Info("pods"), appIndex, payload))
	steps(t, db, 10)
	require.True(t, closed(first), "both indexes are complete")
	require.Nil(t, c.Indexed())
	require.NoError(t, c.Reopen(storetest.Info("pods"), appIndex, payload))
	require.Nil(t, c.Indexed(), "they are still")

	moody := store.Index{Name: "moody", Spec: "moody", Func: func(*object.Object) []string { panic("not today") }}
	require.NoError(t, c.Reopen(storetest.Info("pods"), moody))
	failing := c.Indexed()
	_, err = db.BuildStep(10)
	require.Error(t, err)
	require.True(t, closed(failing))
	require.Nil(t, c.Indexed())

	require.NoError(t, c.Reopen(storetest.Info("pods"), appIndex))
	last := c.Indexed()
	require.False(t, closed(last))
	require.NoError(t, c.Close())
	require.True(t, closed(last))
}

// Close ends a build between two steps; the next opening goes on.
func TestCloseEndsBuild(t *testing.T) {
	db, path := newDB(t, bolt.Options{})
	_, model := filled(t, db, 5000) // ten steps
	var read atomic.Int64
	started, closing := make(chan struct{}), make(chan struct{})
	noted := appIndex
	noted.Func = func(o *object.Object) []string {
		if read.Add(1) == 1 {
			close(started)
			<-closing
		}
		return appIndex.Func(o)
	}
	reopen(t, db, model, noted)
	<-started
	close(closing)
	require.NoError(t, db.Close())
	require.Less(t, read.Load(), int64(5000))

	db = openDB(t, path, bolt.Options{})
	defer db.Close()
	sameAs(t, db, model, "app")
	reopen(t, db, model, appIndex)
	db.WaitForBuilds()
	model.Building = nil
	sameAs(t, db, model)
}

// A step that fails is retried after a pause, and logged once.
func TestBuild_Failed_IsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		db, _ := newDB(t, bolt.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		_, model := filled(t, db, 20)
		var works atomic.Bool
		moody := appIndex
		moody.Func = func(o *object.Object) []string {
			if !works.Load() {
				panic("not today")
			}
			return appIndex.Func(o)
		}
		reopen(t, db, model, moody)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"app"}, viewOf(t, db).Building())
		works.Store(true)
		db.WaitForBuilds()
		model.Building = nil
		sameAs(t, db, model)
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=WARN")), log.String())
		require.Contains(t, log.String(), `msg="index built" collection=pods indexes=[app] objects=20 took=`)
		require.NoError(t, db.Close())
	})
}
