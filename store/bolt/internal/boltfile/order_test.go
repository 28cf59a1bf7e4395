package boltfile

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// orderFile is an encrypted file with a bucket whose names are sealed, beside the names
// that it must have.
type orderFile struct {
	*File
	t     *testing.T
	names []string
}

// orderPath is the path of the objects: only in some buckets names are sealed.
var orderPath = []string{"c", "pods", "g1", "objects"}

func newOrderFile(t *testing.T) *orderFile {
	key, err := ParseKey([]byte(base64.StdEncoding.EncodeToString(make([]byte, secretBytes))))
	require.NoError(t, err)
	f, err := Open(filepath.Join(t.TempDir(), "order.db"), Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	f.cipher, err = newFileCipher(key)
	require.NoError(t, err)
	x := &orderFile{File: f, t: t}
	x.update(func(tx *Tx) {
		b, err := tx.CreateBucket([]byte(orderPath[0]))
		for _, name := range orderPath[1:] {
			require.NoError(t, err)
			b, err = b.CreateBucket([]byte(name))
		}
		require.NoError(t, err)
		for i := range 100 { // more than a bucket without a page of its own has
			x.put(tx, fmt.Sprintf("ns/o-%03d", i))
		}
	})
	return x
}

func (x *orderFile) update(fn func(tx *Tx)) {
	x.t.Helper()
	require.NoError(x.t, x.Update(func(tx *Tx) error { fn(tx); return nil }))
}

func objectsIn(tx *Tx) *Bucket {
	b := tx.Bucket([]byte(orderPath[0]))
	for _, name := range orderPath[1:] {
		b = b.Bucket([]byte(name))
	}
	return b
}

func (x *orderFile) put(tx *Tx, name string) {
	require.NoError(x.t, objectsIn(tx).Put([]byte(name), []byte("value of "+name)))
	if !slices.Contains(x.names, name) {
		x.names = append(x.names, name)
		slices.Sort(x.names)
	}
}

func (x *orderFile) delete(tx *Tx, name string) {
	require.NoError(x.t, objectsIn(tx).Delete([]byte(name)))
	x.names = slices.DeleteFunc(x.names, func(is string) bool { return is == name })
}

// read returns the names as a cursor meets them, and the page that the bucket begins with.
func (x *orderFile) read(tx *Tx) (names []string, root uint64) {
	b := objectsIn(tx)
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		require.Equal(x.t, "value of "+string(k), string(v))
		names = append(names, string(k))
	}
	return names, uint64(b.raw.Root())
}

// requireNames compares what a new reader meets.
func (x *orderFile) requireNames(what string) (root uint64) {
	x.t.Helper()
	require.NoError(x.t, x.View(func(tx *Tx) error {
		var names []string
		names, root = x.read(tx)
		require.Equal(x.t, x.names, names, what)
		require.NotZero(x.t, root, "too small to be kept")
		return nil
	}))
	return root
}

// Names that a reader of an older state leaves behind are none of a newer one, whether it
// reads before the change is committed or after.
func TestOrderOfAnOlderReader(t *testing.T) {
	x := newOrderFile(t)
	for round := range 3 {
		before := slices.Clone(x.names)
		old, err := x.Begin()
		require.NoError(t, err)
		t.Cleanup(old.Rollback) // closing the file waits for it
		read := func() {
			names, _ := x.read(old)
			require.Equal(t, before, names)
		}
		x.update(func(tx *Tx) {
			x.put(tx, fmt.Sprint("ns/new-", round))
			x.delete(tx, fmt.Sprintf("ns/o-%03d", round))
			read()
		})
		x.requireNames("read by an older reader before the commit")
		x.update(func(tx *Tx) { x.put(tx, fmt.Sprint("ns/newer-", round)) })
		read()
		x.requireNames("read by an older reader after the commit")
		read()
		old.Rollback()
	}
}

// If a bucket gets a root page that it had before, and whose order is known from then, it is read
// again.
func TestOrderOfAPageThatCameBack(t *testing.T) {
	x := newOrderFile(t)
	back := 0
	for round := range 20 {
		root := x.requireNames(fmt.Sprint("round ", round))
		for n := range 20 { // no one reads meanwhile
			x.update(func(tx *Tx) { x.put(tx, fmt.Sprintf("ns/r-%d-%d", round, n)) })
			again := uint64(0)
			require.NoError(t, x.View(func(tx *Tx) error { again = uint64(objectsIn(tx).raw.Root()); return nil }))
			if again == root {
				back++
				break
			}
		}
	}
	x.requireNames("in the end")
	require.NotZero(t, back, "no page came back: nothing was tested")
}

// A writer sees its own writes, and after a rollback no reader has seen them.
func TestOrderInATransaction(t *testing.T) {
	x := newOrderFile(t)
	for _, readBefore := range []bool{true, false} {
		committed := slices.Clone(x.names)
		errBack := errors.New("taken back")
		require.ErrorIs(t, x.Update(func(tx *Tx) error {
			if readBefore {
				names, _ := x.read(tx)
				require.Equal(t, x.names, names)
			}
			x.put(tx, "ns/mine")
			x.delete(tx, "ns/o-050")
			names, _ := x.read(tx)
			require.Equal(t, x.names, names)
			x.put(tx, "ns/mine too")
			names, _ = x.read(tx)
			require.Equal(t, x.names, names)
			return errBack
		}), errBack)
		x.names = committed
		x.requireNames("taken back")
		x.update(func(tx *Tx) {
			x.put(tx, "ns/mine")
			names, _ := x.read(tx)
			require.Equal(t, x.names, names)
		})
		x.requireNames("committed")
		x.update(func(tx *Tx) { x.delete(tx, "ns/mine") })
	}
}

// A bucket that is deleted takes with it what is known of all in it, and one of the same
// name is another one. Its neighbours are not forgotten for it: reading them in order would
// cost as much as the first time.
func TestOrderOfADeletedBucket(t *testing.T) {
	x := newOrderFile(t)
	x.requireNames("at first")
	prefix := strings.Join(orderPath, "\x01") + "\x00"
	require.Contains(t, x.orders.m, prefix)
	generation := func(tx *Tx) *Bucket {
		return tx.Bucket([]byte("c")).Bucket([]byte("pods"))
	}
	x.update(func(tx *Tx) {
		_, err := generation(tx).CreateBucket([]byte("g"))
		require.NoError(t, err)
		require.NoError(t, generation(tx).DeleteBucket([]byte("g")))
	})
	require.Contains(t, x.orders.m, prefix, "only the beginning of the name is the same")
	x.update(func(tx *Tx) {
		require.NoError(t, generation(tx).DeleteBucket([]byte("g1")))
	})
	require.NotContains(t, x.orders.m, prefix)
}
