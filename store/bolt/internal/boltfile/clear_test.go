package boltfile

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// A file in clear is read and written with no more allocations than bbolt makes itself, but
// one for a cursor: encryption costs nothing if there is no key.
func TestPlainFile_NoExtraAllocations(t *testing.T) {
	f, err := Open(filepath.Join(t.TempDir(), "clear.db"), Options{})
	require.NoError(t, err)
	defer f.Close()
	var names [][]byte
	for i := range 500 {
		names = append(names, fmt.Appendf(nil, "ns/o-%03d", i))
	}
	require.NoError(t, f.Update(func(tx *Tx) error {
		b, err := tx.CreateBucket(format.BucketCollections)
		require.NoError(t, err)
		for _, name := range names {
			require.NoError(t, b.Put(name, name))
		}
		return nil
	}))
	err = f.Update(func(tx *Tx) error {
		ours, theirs := tx.Bucket(format.BucketCollections), tx.raw.Bucket(format.BucketCollections)
		compare := func(what string, more float64, do, plainly func()) {
			require.InDelta(t, testing.AllocsPerRun(10, plainly), testing.AllocsPerRun(10, do), more, what)
		}
		compare("get", 0, func() {
			for _, name := range names {
				ours.Get(name)
			}
		}, func() {
			for _, name := range names {
				theirs.Get(name)
			}
		})
		compare("scan", 1, func() {
			c := ours.Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
				continue
			}
		}, func() {
			c := theirs.Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
				continue
			}
		})
		put := func(put func(k, v []byte) error) func() {
			return func() {
				for _, name := range names {
					require.NoError(t, put(name, name))
				}
			}
		}
		put(theirs.Put)() // which makes nodes of pages
		compare("put", 0, put(ours.Put), put(theirs.Put))
		return nil
	})
	require.NoError(t, err)
}
