package bolt_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
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

// mine is an index whose function is unknown to Check.
var mine = store.Index{Name: "mine", Spec: "mine:v1", Func: func(o *object.Object) []string { return []string{o.GetName()[:1]} }}

// sampleFile writes a database with a synced collection of 40 objects, one that never was synced,
// and a journal that is not folded, as a kill leaves it.
func sampleFile(t testing.TB) string { return sampleFileUnder(t, bolt.Keyring{}) }

func sampleFileUnder(t testing.TB, keys bolt.Keyring) string {
	dir := t.TempDir()
	live := filepath.Join(dir, "live.db")
	db := openDB(t, live, bolt.Options{FlushInterval: time.Hour, Writer: "test", Keys: keys})
	pods := openCollection(t, db, storetest.Info("pods"), append(lifeIndexes(), mine)...)
	var changes []store.Change
	for i := range 41 {
		changes = append(changes, storetest.Put(sampleObject(i, i+1)))
	}
	r, err := pods.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply(changes))
	require.NoError(t, r.Commit(storetest.Checkpoint(100)))
	nodes := openCollection(t, db, storetest.Info("nodes"))
	require.NoError(t, nodes.Apply(store.Batch{Changes: []store.Change{storetest.Put(storetest.Object("", "edge-1", "u-1", "7", nil, "x"))}}))
	require.NoError(t, pods.Apply(store.Batch{
		Changes:    []store.Change{storetest.Put(sampleObject(2, 101)), {Key: sampleObject(40, 0).Key(), RV: "102"}},
		Checkpoint: storetest.Checkpoint(102),
	}))
	require.NoError(t, db.Fold())
	for i := range 3 {
		rv := 104 + 2*i
		require.NoError(t, pods.Apply(store.Batch{
			Changes:    []store.Change{storetest.Put(sampleObject(i*10, rv-1)), {Key: sampleObject(i*10+1, 0).Key(), RV: fmt.Sprint(rv)}},
			Checkpoint: storetest.Checkpoint(rv),
		}))
		require.NoError(t, db.Flush())
	}
	raw := readFile(t, live)
	path := filepath.Join(dir, "cache.db")
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	require.NoError(t, db.Close())
	return path
}

// sampleObject is the ith object with an RV.
func sampleObject(i, rv int) *object.Object {
	labels := map[string]string{"app": []string{"till", "camera", "sensor"}[i%3]}
	payload := strings.Repeat(fmt.Sprintf("value %d of many, ", i%7), 1+i%5)
	return storetest.Object([]string{"shop", "site"}[i%2], fmt.Sprintf("o-%02d", i), fmt.Sprintf("uid-%d", i), fmt.Sprint(rv), labels, payload)
}

// edit changes a file through bbolt.
func edit(t testing.TB, path string, fn func(*bbolt.Tx) error) {
	db := openRaw(t, path, &bbolt.Options{NoSync: true})
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error { return errors.Join(fn(tx), bolt.Sign(tx, false)) }))
	require.NoError(t, db.Close())
}

// bucketAt returns the bucket at a path of names, such as "c/pods/g1/objects".
func bucketAt(tx *bbolt.Tx, path string) *bbolt.Bucket {
	names := strings.Split(path, "/")
	b := tx.Bucket([]byte(names[0]))
	for _, name := range names[1:] {
		b = b.Bucket([]byte(name))
	}
	return b
}

func TestCheckFindsNothing(t *testing.T) {
	path := sampleFile(t)
	before := readFile(t, path)
	progress := map[string]int64{}
	report, err := bolt.Check(path, bolt.Keyring{}, func(collection string, records int64) { progress[collection] = records })
	require.NoError(t, err)
	require.True(t, report.OK(), report.Problems)
	require.Equal(t, map[string]int64{"nodes": 1, "pods": 37}, progress)
	require.EqualValues(t, 3, report.JournalEntries)
	require.Equal(t, "test", report.Writer)
	require.EqualValues(t, len(before), report.FileBytes)
	require.Equal(t, []bolt.Problem{{Collection: "nodes", Reason: "it has no complete list yet"}}, report.Notes)
	require.Len(t, report.Collections, 2)
	require.Equal(t, "108", report.Collections[1].RV)
	require.EqualValues(t, 37, report.Collections[1].Objects)
	after := readFile(t, path)
	require.Equal(t, before, after, "Check changes nothing")

	raw, err := json.Marshal(report)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"problemCount":0,"problems":[],`)
}

// TestCheckFinds corrupts a file in one way after the other, and requires that Check names the
// problem.
func TestCheckFinds(t *testing.T) {
	const pods, objects, apps = "c/pods/g1", "c/pods/g1/objects", "c/pods/g1/index/app"
	put := func(path string, key, value []byte) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return bucketAt(tx, path).Put(key, value) }
	}
	change := func(path string, key []byte, fn func([]byte) []byte) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			b := bucketAt(tx, path)
			return b.Put(key, fn(append([]byte(nil), b.Get(key)...)))
		}
	}
	flip := func(b []byte) []byte { b[len(b)-1] ^= 1; return b }
	state := func(fn func(*store.State)) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			// The journal has newer states; without it the state in the bucket counts.
			if err := tx.DeleteBucket([]byte("journal")); err != nil {
				return err
			}
			return change("c/pods", []byte("state"), func(b []byte) []byte {
				var s store.State
				raw, err := bolt.Unseal("pods", []byte("state"), b)
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(raw, &s))
				fn(&s)
				raw, err = json.Marshal(s)
				require.NoError(t, err)
				return bolt.Seal("pods", []byte("state"), raw)
			})(tx)
		}
	}
	seq := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	raw := readFile(t, sampleFile(t))
	for _, x := range []struct {
		name            string
		damage          func(*bbolt.Tx) error
		collection, key string
		reason          string
	}{
		{"record flipped", change(objects, []byte("shop/o-04"), flip), "pods", "shop/o-04", "checksum does not match"},
		{"record cut", change(objects, []byte("shop/o-04"), func(b []byte) []byte { return b[:3] }), "pods", "shop/o-04", "record is cut short"},
		{"record of another", func(tx *bbolt.Tx) error {
			return put(objects, []byte("shop/zz"), bucketAt(tx, objects).Get([]byte("shop/o-04")))(tx)
		}, "pods", "shop/zz", "checksum does not match"},
		{"record lost", func(tx *bbolt.Tx) error { return bucketAt(tx, objects).Delete([]byte("shop/o-04")) }, "pods", "", "it has 36 objects, its state has 37"},
		{"index entry lost", func(tx *bbolt.Tx) error { return bucketAt(tx, apps).Delete([]byte("camera\x00shop/o-04")) }, "pods", "shop/o-04", `index app does not have it under "camera"`},
		{"index entry wrong", put(apps, []byte("till\x00shop/o-04"), nil), "pods", "shop/o-04", `index app has it under "till", where it does not belong`},
		{"index entry without an object", put(apps, []byte("till\x00shop/none"), nil), "pods", "shop/none", `index app has it under "till", and there is no such object`},
		{"index entry malformed", put(apps, []byte("till"), nil), "pods", "", `index app has a malformed entry "till"`},
		{"index gone", func(tx *bbolt.Tx) error { return bucketAt(tx, pods+"/index").DeleteBucket([]byte("app")) }, "pods", "", "index app: a bucket is missing"},
		{"unknown index", put(pods+"/index/mine", []byte("x\x00shop/none"), nil), "pods", "shop/none", `index mine has it under "x", and there is no such object`},
		{"list of indexes", change(pods, []byte("indexes"), flip), "pods", "", "indexes: checksum does not match"},
		{"feed entry flipped", change(pods+"/feed", []byte("\x03101"), flip), "pods", "", "change feed: entry 03313031 is corrupt"},
		{"feed entry lost", func(tx *bbolt.Tx) error { return bucketAt(tx, pods+"/feed").Delete([]byte("\x03101")) }, "pods", "shop/o-02", "the change feed does not have it at 101"},
		{"feed entry of another", func(tx *bbolt.Tx) error {
			return bucketAt(tx, objects).Put([]byte("shop/o-02"), bucketAt(tx, objects).Get([]byte("shop/o-04")))
		}, "pods", "shop/o-02", "checksum does not match"},
		{"feed entry moved", func(tx *bbolt.Tx) error {
			return put(pods+"/feed", []byte("\x03109"), bucketAt(tx, pods+"/feed").Get([]byte("\x03101")))(tx)
		}, "pods", "", "change feed: entry 03313039 is corrupt"},
		{"feed gone", func(tx *bbolt.Tx) error { return bucketAt(tx, pods).DeleteBucket([]byte("feed")) }, "pods", "", "change feed: a bucket is missing"},
		{"tombstone lost", func(tx *bbolt.Tx) error { return bucketAt(tx, pods+"/tombs").Delete([]byte("\x03102")) }, "pods", "", "the deletion at 102 has no tombstone"},
		{"tombstone flipped", change(pods+"/tombs", []byte("\x03102"), flip), "pods", "shop/o-40", "its tombstone at 102: checksum does not match"},
		{"tombstone without a deletion", put(pods+"/tombs", []byte("\x03109"), []byte("x")), "pods", "", "the tombstone at 109 belongs to no deletion"},
		{"count", state(func(s *store.State) { s.Count++ }), "pods", "", "it has 40 objects, its state has 41"},
		{"bytes", state(func(s *store.State) { s.Bytes += 1000 }), "pods", "", "bytes, its state has"},
		{"no RV", state(func(s *store.State) { s.RV = "" }), "pods", "", "it is synced and has no resourceVersion"},
		{"state", put("c/nodes", []byte("state"), bolt.Seal("nodes", []byte("state"), []byte("[]"))), "nodes", "", "state: json"},
		{"state flipped", change("c/nodes", []byte("state"), flip), "nodes", "", "state: checksum does not match"},
		{"info", put("c/nodes", []byte("info"), nil), "nodes", "", "info: it is missing or cut short"},
		{"info of another", func(tx *bbolt.Tx) error {
			return put("c/nodes", []byte("info"), bucketAt(tx, "c/pods").Get([]byte("info")))(tx)
		}, "nodes", "", "info: checksum does not match"},
		{"generation", put("c/pods", []byte("gen"), bolt.Seal("pods", []byte("gen"), seq(9))), "pods", "", "a bucket is missing"},
		{"generation flipped", change("c/pods", []byte("gen"), flip), "pods", "", "gen: checksum does not match"},
		{"generation cut", put("c/pods", []byte("gen"), bolt.Seal("pods", []byte("gen"), seq(1)[4:])), "pods", "", "gen: it has 4 bytes, not 8"},
		{"pointer flipped", change("c/pods", []byte("dict"), flip), "pods", "", "dict: checksum does not match"},
		{"no collection", put("c", []byte("x"), []byte("y")), "", "", `collection "x" is not a bucket`},
		{"dictionary flipped", change("dict", []byte{0, 0, 0, 1}, flip), "", "", "dictionary 1 is corrupt"},
		{"dictionary ahead of the sequence", put("dict", []byte{0, 0, 0, 9}, []byte("xxxxxxxx")), "", "", "dictionary 9 is ahead of the sequence 1: a new one would take its id"},
		{"dictionary key malformed", put("dict", []byte("x"), []byte("y")), "", "", "dictionary under the key 78, which is no id"},
		{"dictionary lost", func(tx *bbolt.Tx) error { return bucketAt(tx, "dict").Delete([]byte{0, 0, 0, 1}) }, "pods", "", "its dictionary 1 is missing"},
		{"journal flipped", change("journal/"+string(seq(2)), []byte("entry"), flip), "", "", "journal entry 2: journal entry is corrupt"},
		{"journal lost", func(tx *bbolt.Tx) error { return bucketAt(tx, "journal").DeleteBucket(seq(2)) }, "", "", "journal entry 3: entries before it are missing"},
		{"journal end lost", func(tx *bbolt.Tx) error { return bucketAt(tx, "journal").DeleteBucket(seq(3)) }, "", "", "journal: the newest entry is 2, the sequence is 3"},
		{"journal renamed", func(tx *bbolt.Tx) error {
			journal := bucketAt(tx, "journal")
			other, err := tx.CreateBucket([]byte("kournal"))
			require.NoError(t, err)
			require.NoError(t, journal.ForEachBucket(func(k []byte) error { return tx.MoveBucket(k, journal, other) }))
			return tx.DeleteBucket([]byte("journal"))
		}, "", "", `the file has a bucket "kournal", which is not of this format`},
		{"journal key malformed", put("journal", []byte("x"), []byte("y")), "", "", "journal entry 78: its key is no sequence number"},
		{"journal of a missing bucket", func(tx *bbolt.Tx) error { return bucketAt(tx, "c").DeleteBucket([]byte("pods")) }, "", "", `journal entry 1: it changes the bucket "c/pods", which is missing`},
		{"created", put("meta", []byte("created"), []byte("yesterday")), "", "", "meta: the time of creation"},
		{"epoch", put("meta", []byte("epoch"), []byte("x")), "", "", "meta: the epoch has 1 bytes, not 8"},
	} {
		t.Run(x.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.db")
			require.NoError(t, os.WriteFile(path, raw, 0o600))
			edit(t, path, x.damage)
			report := checkReport(t, path, bolt.Keyring{})
			require.False(t, report.OK())
			for _, p := range report.Problems {
				if p.Collection == x.collection && p.Key == x.key && strings.Contains(p.Reason, x.reason) {
					return
				}
			}
			t.Errorf("not found among %q", report.Problems)
		})
	}
}

// Pages that bbolt would follow without a check are corrupt.
func TestCheckPages(t *testing.T) {
	path := sampleFile(t)
	whole := readFile(t, path)
	leaf := uint64(0)
	db := openRaw(t, path, &bbolt.Options{ReadOnly: true})
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		leaf = uint64(bucketAt(tx, "c/pods/g1/objects").RootPage())
		return nil
	}))
	require.NoError(t, db.Close())
	require.NotZero(t, leaf)
	at := int(leaf) * 4096
	for _, x := range []struct {
		name   string
		damage func(b []byte)
		reason string
	}{
		{"page number wrong", func(b []byte) { b[0] ^= 1 }, "its header is that of page"},
		{"unknown page type", func(b []byte) { b[8] = 0x40 }, "it is of no known type: 0x40"},
		{"too many elements", func(b []byte) { b[11] = 0xff }, "does not fit"},
		{"overflow beyond the file", func(b []byte) { b[14] = 0xff }, "it goes on to page"},
		{"overflow into another page", func(b []byte) { b[12] = 1 }, "page"},
		{"element outside the page", func(b []byte) { b[16+7] = 0x40 }, "element 0 reaches out of it"},
		{"page cycle", func(b []byte) { // a branch whose only page is itself
			b[8], b[10], b[11] = 1, 1, 0
			binary.LittleEndian.PutUint32(b[16:], 16)
			binary.LittleEndian.PutUint32(b[20:], 1)
			binary.LittleEndian.PutUint64(b[24:], leaf)
		}, "it is in use in two places"},
		{"keys", func(b []byte) { b[16+binary.LittleEndian.Uint32(b[20:])] = 'z' }, "needs to be >"},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := append([]byte(nil), whole...)
			x.damage(b[at:])
			path := filepath.Join(t.TempDir(), "cache.db")
			require.NoError(t, os.WriteFile(path, b, 0o600))
			report := checkReport(t, path, bolt.Keyring{})
			require.False(t, report.OK())
			require.Contains(t, fmt.Sprint(report.Problems), x.reason)
			require.Equal(t, x.name != "keys", report.Unsafe)
		})
	}
}

// If a file is no usable database, Check returns an error of its kind.
func TestCheckRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := bolt.Check(filepath.Join(dir, "none.db"), bolt.Keyring{}, nil)
	require.ErrorIs(t, err, store.ErrNoStore)

	garbage := filepath.Join(dir, "garbage.db")
	require.NoError(t, os.WriteFile(garbage, []byte(strings.Repeat("garbage", 10_000)), 0o600))
	_, err = bolt.Check(garbage, bolt.Keyring{}, nil)
	require.ErrorIs(t, err, store.ErrForeign)

	path := sampleFile(t)
	raw := readFile(t, path)
	cut := filepath.Join(dir, "cut.db")
	require.NoError(t, os.WriteFile(cut, raw[:8*4096], 0o600))
	_, err = bolt.Check(cut, bolt.Keyring{}, nil)
	require.ErrorAs(t, err, new(*store.CorruptionError))

	newer := filepath.Join(dir, "newer.db")
	require.NoError(t, os.WriteFile(newer, raw, 0o600))
	edit(t, newer, func(tx *bbolt.Tx) error { return bucketAt(tx, "meta").Put([]byte("format"), []byte{0, 0, 0, 4}) })
	_, err = bolt.Check(newer, bolt.Keyring{}, nil)
	require.ErrorIs(t, err, store.ErrNewerFormat)

	db := openDB(t, path, bolt.Options{})
	_, err = bolt.Check(path, bolt.Keyring{}, nil)
	require.ErrorIs(t, err, store.ErrLocked)
	require.NoError(t, db.Close())
}

// Many problems are counted, and the first of them listed. Leftovers are no problem.
func TestCheckBounds(t *testing.T) {
	path := sampleFile(t)
	edit(t, path, func(tx *bbolt.Tx) error {
		b := bucketAt(tx, "c/pods/g1/index/app")
		for i := range 500 {
			if err := b.Put(fmt.Appendf(nil, "till\x00none/%d", i), nil); err != nil {
				return err
			}
		}
		_, err := bucketAt(tx, "c/pods").CreateBucket([]byte("g2"))
		return err
	})
	report := checkReport(t, path, bolt.Keyring{})
	require.EqualValues(t, 500, report.ProblemCount)
	require.Len(t, report.Problems, 100)
	require.Contains(t, report.Notes, bolt.Problem{Collection: "pods", Reason: "g2 is what a replacement left that did not end; the next opening deletes it"})
}

// A file of a few kilobytes may claim anything, with right checksums. It is checked within little memory.
func TestCheckPages_Claims_NeedLittleMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	for _, x := range []struct {
		name   string
		pages  uint64 // in use, as the meta page claims
		file   uint64 // pages that the file has
		page   func(id uint64, b []byte)
		reason string
	}{
		{"pages that the file does not have", 1 << 40, 8, func(id uint64, b []byte) {
			binary.LittleEndian.PutUint32(b[12:], 1<<32-1) // overflow pages
		}, ""},
		{"one leaf as long as the file", 1 << 18, 1 << 18, func(id uint64, b []byte) {
			binary.LittleEndian.PutUint16(b[8:], 2)
			binary.LittleEndian.PutUint32(b[12:], 1<<18-5)
		}, ""},
		{"a list of free pages as long as the file", 1 << 18, 1 << 18, func(id uint64, b []byte) {
			binary.LittleEndian.PutUint16(b[8:], 0x10)
			binary.LittleEndian.PutUint16(b[10:], 0xFFFF)
			binary.LittleEndian.PutUint64(b[16:], 1<<26)
			binary.LittleEndian.PutUint32(b[12:], 1<<18-5)
		}, "does not fit"},
		{"branches below branches", 1 << 17, 1 << 17, func(id uint64, b []byte) {
			binary.LittleEndian.PutUint16(b[8:], 1)
			binary.LittleEndian.PutUint16(b[10:], 1)
			binary.LittleEndian.PutUint64(b[24:], id+1)
		}, "pages below the root"},
	} {
		t.Run(x.name, func(t *testing.T) {
			f, err := os.Create(path)
			require.NoError(t, err)
			defer f.Close()
			require.NoError(t, f.Truncate(int64(x.file)*4096)) // sparse
			meta := make([]byte, 80)
			binary.LittleEndian.PutUint16(meta[8:], 4)
			for i, v := range []uint64{0xED0CDAED | 2<<32, 4096, 3, 0, 2, x.pages, 7} {
				binary.LittleEndian.PutUint64(meta[16+8*i:], v)
			}
			sum := fnv.New64a()
			sum.Write(meta[16:72])
			binary.LittleEndian.PutUint64(meta[72:], sum.Sum64())
			_, err = f.WriteAt(meta, 0)
			require.NoError(t, err)
			last := uint64(3)
			if x.reason == "pages below the root" {
				last = x.pages - 1
			}
			free := make([]byte, 16)
			binary.LittleEndian.PutUint64(free, 2)
			binary.LittleEndian.PutUint16(free[8:], 0x10)
			_, err = f.WriteAt(free, 2*4096)
			require.NoError(t, err)
			first := uint64(3)
			if x.reason == "does not fit" {
				first = 2
			}
			for id := first; id <= last; id++ {
				b := make([]byte, 32)
				binary.LittleEndian.PutUint64(b, id)
				x.page(id, b)
				_, err = f.WriteAt(b, int64(id)*4096)
				require.NoError(t, err)
			}
			spent := allocated(func() { err = bolt.CheckPages(path) })
			t.Logf("%d KiB: %v", spent>>10, err)
			if x.reason != "" {
				require.ErrorContains(t, err, x.reason)
			}
			require.Less(t, spent, uint64(64<<20), "bytes allocated")
		})
	}
}

// A journal of a few kilobytes may unpack to gigabytes. Opening and checking the file ends before.
func TestJournal_Claims_NeedLittleMemory(t *testing.T) {
	path := sampleFile(t)
	edit(t, path, func(tx *bbolt.Tx) (err error) {
		for range 12 {
			err = errors.Join(err, bolt.AppendJournal(tx, make([]byte, 30<<20)))
		}
		return err
	})
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(2<<20))
	var db *bolt.DB
	require.Less(t, allocated(func() { db, err = bolt.Open(path, bolt.Options{ReadOnly: true}) }), uint64(256<<20), "bytes allocated")
	require.NoError(t, err)
	require.ErrorContains(t, db.JournalCorruption(), "it unpacks to more than a journal of this length can have")
	require.NoError(t, db.Close())
	var report *bolt.CheckReport
	require.Less(t, allocated(func() { report, err = bolt.Check(path, bolt.Keyring{}, nil) }), uint64(512<<20), "bytes allocated")
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(report.Problems), "it unpacks to more than a journal of this length can have")
}

// allocated returns the bytes that fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestCheckJournalHidden: entries that the count in the header of the journal's page leaves out are missed, also if it
// leaves out all of them, and so are none if a fold has emptied the journal.
func TestCheckJournalHidden(t *testing.T) {
	db, path := newDB(t, bolt.Options{})
	c := openCollection(t, db, storetest.Info("a"))
	replaceAll(t, c, []store.Change{storetest.Put(sampleObject(1, 1))}, 30)
	_, _, err := db.Compact(t.Context())
	require.NoError(t, err)
	emptied := filepath.Join(t.TempDir(), "cache.db")
	require.NoError(t, os.WriteFile(emptied, readFile(t, path), 0o600))
	require.True(t, checkReport(t, emptied, bolt.Keyring{}).OK(), "emptied")
	for n := range 4 {
		require.NoError(t, c.Apply(store.Batch{
			Changes: []store.Change{storetest.Put(sampleObject(1, n+40))}, Checkpoint: store.Checkpoint{RV: strconv.Itoa(n + 40)},
		}))
		require.NoError(t, db.Flush())
	}
	whole := readFile(t, path)
	require.NoError(t, db.Close())
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	var page int
	raw := openRaw(t, path, &bbolt.Options{ReadOnly: true})
	require.NoError(t, raw.View(func(tx *bbolt.Tx) error {
		page = int(bucketAt(tx, "journal").RootPage())
		return nil
	}))
	require.NoError(t, raw.Close())
	count := whole[page*4096+10:]
	entries := int(binary.LittleEndian.Uint16(count))
	require.Positive(t, entries)
	for n := range entries {
		b := append([]byte(nil), whole...)
		binary.LittleEndian.PutUint16(b[page*4096+10:], uint16(n))
		require.NoError(t, os.WriteFile(path, b, 0o600))
		require.False(t, checkReport(t, path, bolt.Keyring{}).OK(), "%d of %d entries", n, entries)
	}
}
