package bolt_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// shaped makes objects of about 2 KB. Those of one shape have their field names in
// common, and nothing else.
func shaped(shape, i int) *object.Object {
	names, values := rand.New(rand.NewPCG(uint64(shape), 0)), rand.New(rand.NewPCG(uint64(shape), uint64(i)+1))
	spec := map[string]string{}
	for range 60 {
		spec[fmt.Sprintf("field%x", names.Uint64())] = fmt.Sprint(values.IntN(1000))
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Thing", "spec": spec,
		"metadata": map[string]any{"namespace": "ns", "name": fmt.Sprintf("s%d-%06d", shape, i), "uid": fmt.Sprintf("u%d-%d", shape, i), "resourceVersion": fmt.Sprint(shape*1_000_000 + i)},
	})
	if err != nil {
		panic(err)
	}
	return mustParse(string(raw))
}

// shapes returns batches of 100 objects of one shape, n MiB of JSON in all.
func shapes(shape, n int) (batches [][]store.Change) {
	bytes := 0
	for i := 0; bytes < n<<20; {
		var batch []store.Change
		for range 100 {
			o := shaped(shape, i)
			batch = append(batch, storetest.Put(o))
			bytes, i = bytes+o.Size(), i+1
		}
		batches = append(batches, batch)
	}
	return batches
}

// ratio is the length of the stored records of some changes by that of their JSON.
func ratio(t *testing.T, path string, batches ...[]store.Change) float64 {
	raw, packed := 0, 0
	edit(t, path, func(tx *bbolt.Tx) error {
		b := bucketAt(tx, "c/a")
		gen, err := bolt.Unseal("a", []byte("gen"), b.Get([]byte("gen")))
		require.NoError(t, err)
		objects := bucketAt(tx, fmt.Sprintf("c/a/g%d/objects", gen[7]))
		for _, batch := range batches {
			for _, ch := range batch {
				raw, packed = raw+ch.Object.Size(), packed+len(objects.Get([]byte(ch.Key)))
			}
		}
		return nil
	})
	return float64(packed) / float64(raw)
}

// dictionaries returns the number of dictionaries in a file.
func dictionaries(t *testing.T, path string) (n int) {
	edit(t, path, func(tx *bbolt.Tx) error {
		n = tx.Bucket([]byte("dict")).Stats().KeyN
		return nil
	})
	return n
}

func requireSound(t *testing.T, path string) {
	t.Helper()
	report := checkReport(t, path, bolt.Keyring{})
	require.Empty(t, report.Problems)
}

// beginList begins a list, which fails.
func beginList(t *testing.T, c store.Collection) {
	r, err := c.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Abort())
}

// TestRetraining stores objects of one shape, then of another. The compression gets worse, and
// recovers after a list or a compaction; a crash at any batch leaves a complete file.
func TestRetraining(t *testing.T) {
	for _, tc := range []struct {
		name     string
		event    func(t *testing.T, db *bolt.DB, c store.Collection)
		recovers bool
	}{
		{"list", func(t *testing.T, _ *bolt.DB, c store.Collection) { beginList(t, c) }, true},
		{"compaction", func(t *testing.T, db *bolt.DB, _ store.Collection) {
			require.NoError(t, db.CompactAnyway(t.Context()))
		}, true},
		{"neither", func(*testing.T, *bolt.DB, store.Collection) {}, false},
	} {
		t.Run(tc.name, func(t *testing.T) { retraining(t, tc.event, tc.recovers) })
	}
}

func retraining(t *testing.T, event func(*testing.T, *bolt.DB, store.Collection), recovers bool) {
	if testing.Short() {
		t.Skip("it compresses much")
	}
	db, path := newDB(t, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("a"))
	before, after := shapes(1, 4), shapes(2, 10)
	replaceAll(t, c, before[0], 1_000_099)
	crashed := filepath.Join(t.TempDir(), "crashed.db")
	half := len(before) - 1 + len(after)*2/3
	for i, batch := range append(before[1:], after...) {
		if i == half {
			require.NoError(t, db.Flush()) // the flush compresses, and measures the ratio
			event(t, db, c)
		}
		require.NoError(t, c.Apply(store.Batch{Changes: batch}))
		if i%4 > 0 {
			continue
		}
		raw := readFile(t, path)
		require.NoError(t, os.WriteFile(crashed, raw, 0o600))
		requireSound(t, crashed)
	}
	require.NoError(t, db.Close())
	requireSound(t, path)
	if !recovers {
		require.Equal(t, 1, dictionaries(t, path))
		return
	}
	require.Equal(t, 2, dictionaries(t, path))
	good, worse, recovered := ratio(t, path, before...), ratio(t, path, after[:5]...), ratio(t, path, after[len(after)-5:]...)
	t.Logf("compressed to %.3f, then %.3f, then %.3f", good, worse, recovered)
	require.Greater(t, worse, good*1.5)
	require.Less(t, recovered, good*1.1)

	db = openDB(t, path, bolt.Options{})
	defer db.Close()
	v := view(t, db, "a")
	defer v.Close()
	for _, o := range []*object.Object{shaped(1, 0), shaped(1, 500), shaped(2, 0), shaped(2, 5000)} {
		got, err := v.Get(o.Key())
		require.NoError(t, err)
		require.Equal(t, string(o.Raw()), string(got.Raw()))
	}
}

// A list as good as before makes no other dictionary.
func TestNoRetraining_RatioAsBefore(t *testing.T) {
	db, path := newDB(t, bolt.Options{})
	c := openCollection(t, db, storetest.Info("a"))
	for i, batch := range shapes(1, 12) {
		replaceAll(t, c, batch, 2_000_000+i)
	}
	require.NoError(t, db.Close())
	require.Equal(t, 1, dictionaries(t, path))
}

// Objects that come one by one make a dictionary too, if there are enough.
func TestDictionaryOfFewObjects(t *testing.T) {
	db, path := newDB(t, bolt.Options{})
	c := openCollection(t, db, storetest.Info("a"))
	put := func(i int) {
		require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{storetest.Put(shaped(1, i))}}))
	}
	for i := range 30 {
		put(i % 7)
	}
	require.NoError(t, db.Close())
	require.Zero(t, dictionaries(t, path), "seven objects, however often")
	db = openDB(t, path, bolt.Options{})
	c = openCollection(t, db, storetest.Info("a"))
	for i := range 9 {
		put(i)
	}
	require.NoError(t, db.Close())
	require.Equal(t, 1, dictionaries(t, path))
	requireSound(t, path)
	db = openDB(t, path, bolt.Options{})
	require.NoError(t, db.Drop("a"))
	require.NoError(t, db.Close())
	require.Zero(t, dictionaries(t, path), "dictionaries are deleted with their collection")
}

// Objects of one kind, listed namespace by namespace, need one dictionary.
func TestNoRetraining(t *testing.T) {
	if testing.Short() {
		t.Skip("it compresses much")
	}
	d := pods
	d.count = 2500
	db, path := newDB(t, bolt.Options{})
	c := openCollection(t, db, storetest.Info("a"))
	r, err := c.Replace()
	require.NoError(t, err)
	for order := d.listOrder(t); len(order) > 0; order = order[min(100, len(order)):] {
		var batch []store.Change
		for _, i := range order[:min(100, len(order))] {
			batch = append(batch, d.change(t, i, 1))
		}
		require.NoError(t, r.Apply(batch))
	}
	require.NoError(t, r.Commit(storetest.Checkpoint(9)))
	require.NoError(t, db.Close())
	require.Equal(t, 1, dictionaries(t, path))
}

// TestDictionariesAreBounded stores one shape after the other, with a list in each. All objects stay
// readable, and the number of dictionaries is bounded.
func TestDictionariesAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses 300 MiB")
	}
	same := func(batch []store.Change) []store.Change { // under the keys of the first shape
		for i, ch := range batch {
			_, number, _ := strings.Cut(ch.Object.GetName(), "-")
			raw := strings.Replace(string(ch.Object.Raw()), ch.Object.GetName(), "s-"+number, 1)
			batch[i] = storetest.Put(mustParse(raw))
		}
		return batch
	}
	for _, x := range []struct {
		name      string
		overwrite bool
		last      int
	}{
		{"overwritten", true, 7},
		{"kept", false, 10},
	} {
		t.Run(x.name, func(t *testing.T) {
			db, path := newDB(t, bolt.Options{ReplaceBudget: 1 << 30})
			c := openCollection(t, db, storetest.Info("a"))
			var batches [][]store.Change
			for shape := 1; shape <= x.last; shape++ {
				batches = shapes(shape, 12)
				for i := range batches {
					if x.overwrite {
						batches[i] = same(batches[i])
					}
					require.NoError(t, c.Apply(store.Batch{Changes: batches[i]}))
					require.NoError(t, db.Flush()) // the flush compresses, and measures the ratio
					if i == len(batches)*3/4 {
						beginList(t, c)
					}
				}
			}
			require.NoError(t, db.Close())
			requireSound(t, path)
			require.Equal(t, min(x.last, 8), dictionaries(t, path))
			first, end := ratio(t, path, batches[:5]...), ratio(t, path, batches[len(batches)-5:]...)
			t.Logf("%.3f, then %.3f with %d dictionaries", first, end, dictionaries(t, path))
			if x.overwrite {
				require.Less(t, end, first*0.7)
			}
		})
	}
}

// Records are decoded after their view has ended, also if their dictionary's decoder has made room for
// another since.
func TestRecords_DecoderDropped_AreDecoded(t *testing.T) {
	db, path := newDB(t, bolt.Options{})
	c := openCollection(t, db, storetest.Info("a"))
	var changes []store.Change
	for _, batch := range shapes(1, 1) {
		changes = append(changes, batch...)
	}
	replaceAll(t, c, changes, 9)
	v := view(t, db, "a")
	var records []store.Record
	for r, err := range v.Records("", "") {
		require.NoError(t, err)
		records = append(records, r)
	}
	v.Close()
	require.Len(t, records, len(changes))
	db.ForgetDecoders()
	first := records[0].Decode // decodes all records of the view
	for _, r := range records {
		raw, err := first(r.Key, r.Stored, nil)
		require.NoError(t, err)
		require.Len(t, raw, r.Bytes)
	}
	require.NoError(t, db.Close())
	require.Equal(t, 1, dictionaries(t, path))
}
