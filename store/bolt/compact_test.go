package bolt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// content returns all entries of a file, with the sequences of buckets, but without the number of
// the newest transaction.
func content(t *testing.T, path string) (all []string) {
	db := openRaw(t, path, &bbolt.Options{ReadOnly: true})
	defer db.Close()
	var walk func(name string, b *bbolt.Bucket) error
	walk = func(name string, b *bbolt.Bucket) error {
		all = append(all, fmt.Sprintf("%s: %d", name, b.Sequence()))
		return b.ForEach(func(k, v []byte) error {
			if string(k) == "last" {
				return nil
			}
			if v == nil {
				return walk(fmt.Sprintf("%s/%q", name, k), b.Bucket(k))
			}
			all = append(all, fmt.Sprintf("%s/%q=%x", name, k, v))
			return nil
		})
	}
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk(string(name), b) })
	}))
	return all
}

// bloatedFile is a file with a journal, most of whose objects were deleted, and the model of its
// views.
func bloatedFile(t *testing.T) (string, *storetest.Model) {
	if bloatedBytes == nil {
		makeBloated(t)
	}
	path := filepath.Join(t.TempDir(), "cache.db")
	require.NoError(t, os.WriteFile(path, bloatedBytes, 0o600))
	return path, bloatedModel.Clone()
}

// The result of makeBloated, which takes a while.
var (
	bloatedBytes []byte
	bloatedModel *storetest.Model
)

func makeBloated(t *testing.T) {
	db, live := newDB(t, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("pods"), lifeIndexes()...)
	model := storetest.NewModel(storetest.Info("pods"), lifeIndexes()...)
	var puts, deletes []store.Change
	for i := range 3000 {
		o := storetest.Object("ns", fmt.Sprintf("o-%04d", i), "u", fmt.Sprint(i+1), map[string]string{"app": "till"}, incompressible(i))
		puts = append(puts, storetest.Put(o))
		if i%100 != 0 {
			deletes = append(deletes, storetest.Delete(o.Key()))
		}
	}
	replaceAll(t, c, puts, 5000)
	model.Replace(storetest.Info("pods"), puts, storetest.Checkpoint(5000))
	for _, b := range []store.Batch{
		{Changes: deletes, Checkpoint: storetest.Checkpoint(6000)},
		{Changes: []store.Change{storetest.Put(storetest.Object("ns", "new", "u", "6001", nil, "x"))}, Checkpoint: storetest.Checkpoint(6001)},
	} {
		require.NoError(t, db.Fold())
		require.NoError(t, c.Apply(b))
		model.Apply(b)
	}
	require.NoError(t, db.Flush())
	raw := readFile(t, live)
	require.NoError(t, db.Close())
	bloatedBytes, bloatedModel = raw, model
}

func TestCompact(t *testing.T) {
	path, model := bloatedFile(t)
	// The leftover of an earlier compaction that crashed.
	require.NoError(t, os.WriteFile(path+".compact", []byte("half a file"), 0o600))
	was := content(t, path)
	link := filepath.Join(t.TempDir(), "link.db")
	require.NoError(t, os.Symlink(path, link))

	before, after, err := bolt.Compact(link, bolt.Options{})
	require.NoError(t, err)
	require.Less(t, after, before/2)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, after, info.Size())
	require.Equal(t, os.FileMode(0o600), info.Mode())
	target, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, target.Mode()&os.ModeSymlink, "a link stays one")
	require.NoFileExists(t, path+".compact")
	require.Equal(t, was, content(t, path))
	require.Equal(t, bolt.Clean, bolt.LastShutdown(path), "the compacted file counts as closed cleanly")

	report := checkReport(t, path, bolt.Keyring{})
	require.Empty(t, report.Problems)
	db := openDB(t, path, bolt.Options{})
	defer db.Close()
	v := view(t, db, "pods")
	defer v.Close()
	model.Equal(t, v)
}

// If there is nothing to gain the file stays.
func TestCompactNothingToGain(t *testing.T) {
	path, _ := bloatedFile(t)
	_, after, err := bolt.Compact(path, bolt.Options{})
	require.NoError(t, err)
	before, again, err := bolt.Compact(path, bolt.Options{})
	require.NoError(t, err)
	require.Equal(t, after, before)
	require.LessOrEqual(t, again, before)
	require.NoFileExists(t, path+".compact")
}

// askedClock calls asked before it returns the time. A database asks for it once its file is open.
type askedClock struct {
	clock.RealClock
	asked func()
}

func (c askedClock) Now() time.Time {
	c.asked()
	return c.RealClock.Now()
}

// An obstacle leaves the file as it was, and no other file beside it.
func TestCompactRefuses(t *testing.T) {
	path, _ := bloatedFile(t)
	raw := readFile(t, path)
	unchanged := func() {
		now := readFile(t, path)
		require.True(t, string(raw) == string(now), "the file changed")
		require.NoFileExists(t, path+".compact")
	}
	_, _, err := bolt.Compact(path+".none", bolt.Options{})
	require.ErrorIs(t, err, store.ErrNoStore)

	// The check before reads the whole file, so that it overflows only when it is open.
	restore := func() {}
	opened := sync.OnceFunc(func() { _, restore = overflow(t, path) })
	_, _, err = bolt.Compact(path, bolt.Options{Clock: askedClock{clock.RealClock{}, opened}})
	restore()
	_, dir := needed(t, err)
	require.Equal(t, filepath.Dir(path), dir)
	unchanged()

	reader := openDB(t, path, bolt.Options{ReadOnly: true})
	_, _, err = bolt.Compact(path, bolt.Options{})
	require.ErrorIs(t, err, store.ErrLocked)
	require.NoError(t, reader.Close())
	unchanged()

	edit(t, path, func(tx *bbolt.Tx) error {
		return bucketAt(tx, "c/pods/g2/objects").Put([]byte("ns/x"), []byte("damage"))
	})
	raw = readFile(t, path)
	_, _, err = bolt.Compact(path, bolt.Options{})
	require.ErrorAs(t, err, new(*store.CorruptionError))
	unchanged()
}
