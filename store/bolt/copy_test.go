package bolt_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// The end of a large value is read only when the transaction that copies it is committed. If that
// page is not in the file, the compaction ends with an error, and the database can still be closed.
func TestCompact_UnreadablePage_Fails(t *testing.T) {
	db, path := newDB(t, bolt.Options{})
	c := openCollection(t, db, storetest.Info("pods"))
	noise := make([]byte, 60_000) // which does not compress
	random := rand.New(rand.NewPCG(1, 1))
	for i := range noise {
		noise[i] = byte('!' + random.IntN(90))
		if noise[i] == '"' || noise[i] == '\\' {
			noise[i] = 'x'
		}
	}
	replaceAll(t, c, []store.Change{storetest.Put(storetest.Object("ns", "large", "u", "1", nil, string(noise)))}, 10)
	require.NoError(t, db.Close())

	// Move the page to the end of the file and cut the file short, as if the disk did not give the
	// page back.
	bdb := openRaw(t, path, nil)
	require.NoError(t, bdb.Update(func(tx *bbolt.Tx) error {
		b := bucketAt(tx, "c/pods/g1/objects")
		return b.Put([]byte("ns/large"), append([]byte{}, b.Get([]byte("ns/large"))...))
	}))
	require.NoError(t, bdb.Close())
	raw := readFile(t, path)
	last := 0
	for page := 2; page < len(raw)/4096; page++ {
		head := raw[page*4096:]
		if more := binary.NativeEndian.Uint32(head[12:]); binary.NativeEndian.Uint64(head) == uint64(page) && more > 5 {
			last = page + int(more)
		}
	}
	require.NotZero(t, last)

	db = openByHand(t, path, bolt.Options{})
	require.NoError(t, os.Truncate(path, int64(last)*4096))
	done := make(chan error, 1)
	go func() {
		_, _, err := db.Compact(context.Background())
		done <- err
		done <- db.Close()
	}()
	for _, what := range []string{"compact", "close"} {
		select {
		case err := <-done:
			if what == "compact" {
				require.ErrorAs(t, err, new(*store.CorruptionError))
			}
		case <-time.After(time.Minute):
			t.Fatal(what + " does not end")
		}
	}
}
