package bolt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// A file on a read-only disk, with a journal, is read and changed in memory, up to the bound that a full
// disk has. Once the disk takes writes, all of it becomes durable, and a view from before it stays the
// state that it was.
func TestOrReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root has to mount a file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) }()
	remount := func(flags uintptr) {
		require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|flags, ""))
	}
	path := filepath.Join(dir, "cache.db")
	opts := bolt.Options{FlushInterval: time.Hour, OrReadOnly: true, ViewLimit: time.Hour}
	db := openDB(t, path, opts)
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, []store.Change{storetest.Put(storetest.Object("ns", "paged", "u", "1", nil, "in a page"))}, 1)
	put := func(n int, text string) error {
		return c.Apply(store.Batch{
			Changes:    []store.Change{storetest.Put(storetest.Object("ns", fmt.Sprintf("o-%d", n), "u", strconv.Itoa(n+2), nil, text))},
			Checkpoint: storetest.Checkpoint(n + 2),
		})
	}
	require.NoError(t, put(0, "in the journal"))
	require.NoError(t, db.Flush())
	require.Error(t, db.CloseFailing(fmt.Errorf("as if killed")))
	remount(syscall.MS_RDONLY)

	_, err := bolt.Open(path, bolt.Options{})
	require.ErrorIs(t, err, syscall.EROFS, "only if it is asked for")
	db = openDB(t, path, opts)
	require.ErrorIs(t, db.Stats().FlushError, syscall.EROFS)
	c = openCollection(t, db, storetest.Info("a"))
	require.EqualValues(t, 2, c.State().Count)
	_, err = db.Open(storetest.Info("b"))
	require.ErrorIs(t, err, syscall.EROFS)
	before, err := c.View()
	require.NoError(t, err)

	n := 1
	for ; put(n, incompressible(n)) == nil; n++ {
		require.Less(t, n, 100_000, "memory is not bounded")
	}
	require.ErrorIs(t, put(n, incompressible(n)), syscall.EROFS)
	require.ErrorIs(t, db.Flush(), syscall.EROFS)
	require.EqualValues(t, n+1, c.State().Count)

	remount(0)
	require.NoError(t, db.Flush())
	require.NoError(t, db.Stats().FlushError)
	for range 20 { // so that pages are used again
		n++
		require.NoError(t, c.Apply(store.Batch{
			Changes:    []store.Change{storetest.Put(storetest.Object("ns", "paged", "u", strconv.Itoa(n+2), nil, incompressible(n)))},
			Checkpoint: storetest.Checkpoint(n + 2),
		}))
		require.NoError(t, db.Fold())
	}
	for key, text := range map[string]string{"ns/o-0": "in the journal", "ns/paged": "in a page"} {
		o, err := before.Get(key)
		require.NoError(t, err)
		require.Contains(t, string(o.Raw()), text)
	}
	require.EqualValues(t, 2, before.State().Count)
	before.Close()
	openCollection(t, db, storetest.Info("b"))
	require.NoError(t, db.Close())

	report := checkReport(t, path, bolt.Keyring{})
	require.True(t, report.Usable(), "%v", report.Problems)
	require.Empty(t, report.Problems)
	require.Equal(t, bolt.Clean, bolt.LastShutdown(path))

	// Nothing is dirty: nothing is lost when it is closed.
	remount(syscall.MS_RDONLY)
	db = openDB(t, path, opts)
	require.NoError(t, db.Close())
}
