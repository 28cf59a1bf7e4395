package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type harness struct {
	path    string
	opts    bolt.Options
	db      *bolt.DB
	folding bool
	folders sync.WaitGroup
}

func (h *harness) DB() store.DB  { return h.db }
func (h *harness) Durable() bool { return true }

// harnessStep is how many objects a step of an index's build reads, so that builds have several steps.
const harnessStep = 5

func (h *harness) Settle(t storetest.T) {
	for more := true; more; {
		var err error
		more, err = h.db.BuildStep(harnessStep)
		require.NoError(t, err)
	}
}

func (h *harness) Reopen(t storetest.T) {
	require.NoError(t, h.db.Close())
	h.open(t)
}

func (h *harness) open(t storetest.T) {
	db, err := bolt.OpenByHand(h.path, h.opts)
	require.NoError(t, err)
	h.db = db
	if h.folding {
		h.folders.Go(func() {
			for n := 0; ; n++ {
				var err error
				switch n % 4 {
				case 0:
					err = db.Fold()
				case 1:
					err = db.Flush()
				case 2:
					if err = db.CompactAnyway(context.Background()); errors.Is(err, bolt.ErrBusy) {
						err = nil
					}
				case 3:
					_, err = db.BuildStep(harnessStep)
				}
				if err != nil {
					return // closed
				}
			}
		})
	}
}

// TestSuiteInMemory runs the shared suite with replacements that fit in memory.
func TestSuiteInMemory(t *testing.T) { suite(t, bolt.Options{}, false) }

// TestSuiteGenerations runs the shared suite with replacements that fill a new generation at once.
func TestSuiteGenerations(t *testing.T) { suite(t, bolt.Options{ReplaceBudget: 1}, false) }

// TestSuiteFolding runs the shared suite beside continuous flushes, folds, compactions and steps of
// builds.
func TestSuiteFolding(t *testing.T) { suite(t, bolt.Options{}, true) }

func TestSuiteEncryptedGenerations(t *testing.T) {
	suite(t, bolt.Options{ReplaceBudget: 1, Keys: keysOf(1)}, false)
}

func TestSuiteEncryptedFolding(t *testing.T) { suite(t, bolt.Options{Keys: keysOf(1)}, true) }

// suite runs the shared suite. After each of its tests it checks the file.
func suite(t *testing.T, opts bolt.Options, folding bool) {
	opts.ViewLimit = time.Hour // some tests read a large view for longer than the limit
	opts.HistoryRetention = storetest.HistoryRetention
	storetest.Run(t, func(t storetest.T) storetest.Harness {
		dir, err := os.MkdirTemp("", "bolt")
		require.NoError(t, err)
		h := &harness{path: filepath.Join(dir, "cache.db"), opts: opts, folding: folding}
		h.open(t)
		t.Cleanup(func() {
			_ = h.db.Close() // some tests have closed it
			h.folders.Wait()
			checkFile(t, h.path)
			_ = os.RemoveAll(dir)
		})
		return h
	})
}

// checkFile runs bbolt's own consistency check.
func checkFile(t tester, path string) {
	db := openRaw(t, path, &bbolt.Options{ReadOnly: true})
	defer db.Close()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return nil
	}))
}

func newDB(t *testing.T, opts bolt.Options) (*bolt.DB, string) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db := openDB(t, path, opts)
	t.Cleanup(func() { _ = db.Close() })
	return db, path
}

// newDBByHand is newDB of a database in which nothing runs in the background.
func newDBByHand(t *testing.T, opts bolt.Options) (*bolt.DB, string) {
	path := filepath.Join(t.TempDir(), "cache.db")
	return openByHand(t, path, opts), path
}

func openByHand(t *testing.T, path string, opts bolt.Options) *bolt.DB {
	db, err := bolt.OpenByHand(path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestReadOnly(t *testing.T) {
	_, err := bolt.Open(filepath.Join(t.TempDir(), "none.db"), bolt.Options{ReadOnly: true})
	require.ErrorIs(t, err, store.ErrNoStore)

	db, path := newDB(t, bolt.Options{})
	_, err = bolt.Open(path, bolt.Options{ReadOnly: true})
	require.ErrorIs(t, err, store.ErrLocked)
	require.NoError(t, db.Close())
	ro := openDB(t, path, bolt.Options{ReadOnly: true})
	defer ro.Close()
	second, err := bolt.Open(path, bolt.Options{ReadOnly: true})
	require.NoError(t, err, "readers do not exclude each other")
	require.NoError(t, second.Close())
	_, err = ro.Open(storetest.Info("a"))
	require.Error(t, err)
}

// A corrupt record is reported and never served, the other records are served, and writing the key
// repairs it.
func TestCorruptRecord(t *testing.T) {
	db, path := newDB(t, bolt.Options{})
	idx := store.FieldIndex("payload", "data.payload")
	c := openCollection(t, db, storetest.Info("a"), idx)
	var changes []store.Change
	for i := range 20 {
		changes = append(changes, storetest.Put(storetest.Object("ns", fmt.Sprintf("o-%02d", i), "u", "5", nil, fmt.Sprintf("value %d of many", i))))
	}
	replaceAll(t, c, changes, 9)
	require.NoError(t, db.Close())

	flipRecord(t, path, "a", "ns/o-07")

	db = openDB(t, path, bolt.Options{})
	defer db.Close()
	c = openCollection(t, db, storetest.Info("a"), idx)
	v, err := c.View()
	require.NoError(t, err)
	defer v.Close()
	var corrupt *store.CorruptionError
	_, err = v.Get("ns/o-07")
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, "ns/o-07", corrupt.Key)
	_, err = v.Raw("ns/o-07", nil)
	require.ErrorAs(t, err, &corrupt)
	_, err = v.Header("ns/o-07")
	require.ErrorAs(t, err, &corrupt)
	served, reported := 0, 0
	for o, err := range v.Objects("", "") {
		if err != nil {
			require.ErrorAs(t, err, &corrupt)
			reported++
			continue
		}
		require.NotEqual(t, "o-07", o.GetName())
		served++
	}
	require.Equal(t, 19, served)
	require.Equal(t, 1, reported)

	require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{storetest.Put(storetest.Object("ns", "o-07", "u", "10", nil, "new value"))}}))
	require.EqualValues(t, 20, c.State().Count)
	healed, err := c.View()
	require.NoError(t, err)
	defer healed.Close()
	_, err = healed.Get("ns/o-07")
	require.NoError(t, err)
	for key, err := range healed.IndexKeys("payload", "value 7 of many", "") {
		t.Errorf("the index still has the corrupt record's old value: %s, %v", key, err)
	}
}

func replaceAll(t *testing.T, c store.Collection, changes []store.Change, rv int) {
	r, err := c.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply(changes))
	require.NoError(t, r.Commit(storetest.Checkpoint(rv)))
}

// flipRecord changes one bit in the last byte of a stored record.
func flipRecord(t *testing.T, path, collection, key string) {
	db := openRaw(t, path, nil)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("c")).Bucket([]byte(collection))
		var objects *bbolt.Bucket
		err := b.ForEachBucket(func(name []byte) error {
			if o := b.Bucket(name).Bucket([]byte("objects")); o != nil {
				objects = o
			}
			return nil
		})
		if err != nil {
			return err
		}
		value := append([]byte(nil), objects.Get([]byte(key))...)
		value[len(value)-1] ^= 1
		return objects.Put([]byte(key), value)
	}))
	require.NoError(t, db.Close())
}

// A record that is stored under the key of another is corrupt.
func TestMovedRecord(t *testing.T) {
	db, path := newDB(t, bolt.Options{})
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, []store.Change{storetest.Put(storetest.Object("ns", "a", "u", "5", nil, "x"))}, 9)
	require.NoError(t, db.Close())
	raw := openRaw(t, path, nil)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("c")).Bucket([]byte("a")).Bucket([]byte("g1")).Bucket([]byte("objects"))
		return b.Put([]byte("ns/b"), append([]byte(nil), b.Get([]byte("ns/a"))...))
	}))
	require.NoError(t, raw.Close())
	db = openDB(t, path, bolt.Options{ReadOnly: true})
	defer db.Close()
	v := view(t, db, "a")
	defer v.Close()
	_, err := v.Get("ns/a")
	require.NoError(t, err)
	_, err = v.Get("ns/b")
	require.ErrorAs(t, err, new(*store.CorruptionError))
}

// If a crash leaves an unfinished generation, the next opening deletes it, and the collection is as
// before the replacement.
func TestCrashDuringReplacement(t *testing.T) {
	db, path := newDB(t, bolt.Options{ReplaceBudget: 1})
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, []store.Change{storetest.Put(storetest.Object("ns", "old", "u", "5", nil, "x"))}, 9)
	r, err := c.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply([]store.Change{storetest.Put(storetest.Object("ns", "new", "u", "11", nil, "x")), storetest.Delete("ns/old")}))
	crashed := filepath.Join(t.TempDir(), "crashed.db")
	raw := readFile(t, path) // as a kill would leave it
	require.NoError(t, os.WriteFile(crashed, raw, 0o600))
	require.NoError(t, r.Abort())
	require.Equal(t, 2, generations(t, crashed, "a"))

	db = openDB(t, crashed, bolt.Options{})
	v := view(t, db, "a")
	require.Equal(t, "9", v.State().RV)
	_, err = v.Get("ns/old")
	require.NoError(t, err)
	_, err = v.Get("ns/new")
	require.ErrorIs(t, err, store.ErrNotFound)
	v.Close()
	require.NoError(t, db.Close())
	require.Equal(t, 1, generations(t, crashed, "a"))
	checkFile(t, crashed)
}

func generations(t *testing.T, path, collection string) (n int) {
	db := openRaw(t, path, &bbolt.Options{ReadOnly: true})
	defer db.Close()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("c")).Bucket([]byte(collection)).ForEachBucket(func([]byte) error { n++; return nil })
	}))
	return n
}

// flipJournal changes one bit of the journal's nth entry.
func flipJournal(t *testing.T, path string, n int) {
	db := openRaw(t, path, nil)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("journal"))
		cur := b.Cursor()
		k, _ := cur.First()
		for range n {
			k, _ = cur.Next()
		}
		entry := b.Bucket(k)
		v := append([]byte(nil), entry.Get([]byte("entry"))...)
		v[len(v)-1] ^= 1
		return entry.Put([]byte("entry"), v)
	}))
	require.NoError(t, db.Close())
}

// If the file is full a flush fails; applied changes are readable all the same, and become durable
// when there is room again. Past a bound, Apply blocks the writer.
func TestQuota(t *testing.T) {
	db, path := newDB(t, bolt.Options{MaxBytes: 4 << 20, FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, nil, 1)
	apply := func(n int) error {
		var changes []store.Change
		for i := range 50 {
			changes = append(changes, storetest.Put(storetest.Object("ns", fmt.Sprintf("o-%d-%d", n, i), "u", "5", nil, incompressible(n*50+i))))
		}
		return c.Apply(store.Batch{Changes: changes, Checkpoint: storetest.Checkpoint(n + 2)})
	}
	n := 0
	for ; apply(n) == nil; n++ {
		require.Less(t, n, 1000)
		if n == 0 { // a slow machine may flush the rest at once, which fails as a whole
			require.NoError(t, db.Flush())
		}
	}
	require.Error(t, db.Flush())
	require.LessOrEqual(t, db.Stats().FileBytes, int64(4<<20))
	require.EqualValues(t, n*50, c.State().Count, "refused batches are absent, applied ones stored")
	v, err := c.View()
	require.NoError(t, err)
	_, err = v.Get(fmt.Sprintf("ns/o-%d-49", n-1))
	v.Close()
	require.NoError(t, err)

	// There is room again: in this test because the quota grew.
	require.Error(t, db.Close())
	db = openDB(t, path, bolt.Options{MaxBytes: 64 << 20, FlushInterval: time.Hour})
	defer db.Close()
	c = openCollection(t, db, storetest.Info("a"))
	state := c.State()
	require.Positive(t, state.Count)
	require.Zero(t, state.Count%50, "a batch is whole or not there")
	require.Equal(t, fmt.Sprint(state.Count/50+1), state.RV, "the checkpoint is that of the objects")
	require.NoError(t, apply(n))
	require.NoError(t, db.Flush())
}

// A fold comes before the journal has too many cells for a fast replay: many small changes have
// many, however few bytes they are.
func TestFoldBoundsCells(t *testing.T) {
	db, _ := newDB(t, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, nil, 1)
	folded := false
	for n := 0; n < 40 && !folded; n++ {
		before := db.JournalBytes()
		var changes []store.Change
		for i := range 2000 {
			rv := n*2000 + i + 2
			changes = append(changes, storetest.Put(storetest.Object("ns", fmt.Sprint(rv), "u", fmt.Sprint(rv), nil, "")))
		}
		require.NoError(t, c.Apply(store.Batch{Changes: changes, Checkpoint: goingOn((n+1)*2000 + 2)}))
		require.NoError(t, db.Flush())
		require.Less(t, db.JournalBytes(), 8<<20, "the fold comes before the journal is large")
		folded = db.JournalBytes() < before
	}
	require.True(t, folded)
}

// goingOn returns a checkpoint that continues the history.
func goingOn(rv int) store.Checkpoint {
	return store.Checkpoint{RV: fmt.Sprint(rv), Cluster: "one", ListReason: "expired"}
}

func incompressible(seed int) string {
	b := make([]byte, 1500)
	random := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // not negative, and no secret
	for i := range b {
		b[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[random.IntN(64)]
	}
	return string(b)
}

// A view that is kept open expires, so that it neither blocks Close nor makes the file grow for
// ever.
func TestViewExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := newDB(t, bolt.Options{ViewLimit: time.Minute})
		c := openCollection(t, db, storetest.Info("a"))
		var changes []store.Change
		for i := range 10 {
			changes = append(changes, storetest.Put(storetest.Object("ns", fmt.Sprint(i), "u", "5", nil, "x")))
		}
		replaceAll(t, c, changes, 9)
		v, err := c.View()
		require.NoError(t, err)
		n := 0
		var last error
		for _, err := range v.Objects("", "") {
			if last = err; err != nil {
				break
			}
			if n++; n == 3 {
				time.Sleep(2 * time.Minute)
			}
		}
		require.ErrorIs(t, last, store.ErrViewExpired)
		require.Equal(t, 3, n, "the objects before the corrupt one, none after it")
		_, err = v.Get("ns/1")
		require.ErrorIs(t, err, store.ErrViewExpired)
		_, err = v.Header("ns/1")
		require.ErrorIs(t, err, store.ErrViewExpired)
		require.NoError(t, db.Close(), "nothing holds it up")
		v.Close()
	})
}

// If a reader never closes its views, rewriting the same objects over and over does not make the
// file grow without bound.
func TestFileStaysBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := newDB(t, bolt.Options{})
		c := openCollection(t, db, storetest.Info("a"))
		replaceAll(t, c, nil, 1)
		round := func(n int) {
			v, err := c.View()
			require.NoError(t, err)
			var changes []store.Change
			for i := range 20 {
				changes = append(changes, storetest.Put(storetest.Object("ns", fmt.Sprint(i), "u", fmt.Sprint(n+10), nil, incompressible(n+i))))
			}
			require.NoError(t, c.Apply(store.Batch{Changes: changes, Checkpoint: storetest.Checkpoint(n + 10)}))
			require.NoError(t, db.Fold())
			time.Sleep(2 * bolt.DefaultViewLimit)
			_, err = v.Get("ns/1")
			require.ErrorIs(t, err, store.ErrViewExpired)
		}
		for n := range 20 {
			round(n)
		}
		before := db.Stats().FileBytes
		for n := range 100 {
			round(20 + n)
		}
		require.LessOrEqual(t, db.Stats().FileBytes, 2*before)
	})
}
