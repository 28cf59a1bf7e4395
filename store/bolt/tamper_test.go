package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// entriesOf returns all entries of a file, by bucket.
func entriesOf(t *testing.T, path string) (buckets []string, entries map[string][][2][]byte) {
	entries = map[string][][2][]byte{}
	db := openRaw(t, path, &bbolt.Options{ReadOnly: true})
	defer db.Close()
	var walk func(path string, b *bbolt.Bucket) error
	walk = func(path string, b *bbolt.Bucket) error {
		buckets = append(buckets, path)
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return walk(path+"/"+string(k), b.Bucket(k))
			}
			entries[path] = append(entries[path], [2][]byte{bytes.Clone(k), append([]byte{}, v...)})
			return nil
		})
	}
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk(string(name), b) })
	}))
	return buckets, entries
}

func valueAt(t *testing.T, path, bucket, key string) []byte {
	_, entries := entriesOf(t, path)
	for _, e := range entries[bucket] {
		if string(e[0]) == key {
			return e[1]
		}
	}
	return nil
}

// sampleVersions returns all versions of the objects of sampleFile, as JSON.
func sampleVersions() map[string]bool {
	versions := map[string]bool{string(storetest.Object("", "edge-1", "u-1", "7", nil, "x").Raw()): true}
	for i := range 41 {
		versions[string(sampleObject(i, i+1).Raw())] = true
	}
	versions[string(sampleObject(2, 101).Raw())] = true
	for i := range 3 {
		versions[string(sampleObject(i*10, 103+2*i).Raw())] = true
	}
	return versions
}

// served reads all that a file serves, and returns objects that never existed.
func served(t *testing.T, path string, keys bolt.Keyring, versions map[string]bool) (wrong []string) {
	db, err := bolt.Open(path, bolt.Options{ReadOnly: true, Keys: keys})
	if err != nil {
		return nil
	}
	defer db.Close()
	for _, id := range []string{"pods", "nodes"} {
		v, err := db.View(id)
		if err != nil {
			continue
		}
		for o, err := range v.Objects("", "") {
			if err == nil && !versions[string(o.Raw())] {
				wrong = append(wrong, string(o.Raw()))
			}
		}
		for e, err := range v.Changes("100") {
			if err == nil && e.Object != nil && !versions[string(e.Object.Raw())] {
				wrong = append(wrong, string(e.Object.Raw()))
			}
		}
		for k := range 41 {
			key := sampleObject(k, 0).Key()
			if o, err := v.Get(key); err == nil && (o.Key() != key || !versions[string(o.Raw())]) {
				wrong = append(wrong, key+" is "+o.Key())
			}
		}
		v.Close()
	}
	return wrong
}

// contentOf returns all content of a sound file.
func contentOf(t *testing.T, path string, keys bolt.Keyring) (lines []string) {
	db := openDB(t, path, bolt.Options{ReadOnly: true, Keys: keys})
	defer db.Close()
	for _, id := range []string{"pods", "nodes"} {
		v := view(t, db, id)
		lines = append(lines, fmt.Sprint(v.Info(), v.State()))
		for o, err := range v.Objects("", "") {
			require.NoError(t, err)
			lines = append(lines, string(o.Raw()))
		}
		for _, index := range v.Indexes() {
			for e, err := range v.IndexEntries(index, "", store.IndexEntry{}) {
				require.NoError(t, err)
				lines = append(lines, index+e.Value+e.Key)
			}
		}
		for e, err := range v.Changes("100") {
			if id == "pods" {
				require.NoError(t, err)
				lines = append(lines, fmt.Sprint(e.RV, e.Key, e.Deleted))
			}
		}
		v.Close()
	}
	return lines
}

// TestTampering changes one entry after the other in an encrypted file, as an attacker with access
// to the disk can. No changed entry is ever served, and Check finds it unless the journal has a
// newer value of it.
func TestTampering(t *testing.T) {
	keys := bolt.Keyring{Primary: newKey(1)}
	sample := sampleFileUnder(t, keys)
	raw := readFile(t, sample)
	versions := sampleVersions()
	require.Empty(t, served(t, sample, keys, versions))
	plainRecord := valueAt(t, sampleFile(t), "c/pods/g1/objects", "shop/o-04")
	require.NotEmpty(t, plainRecord)
	buckets, entries := entriesOf(t, sample)
	path := filepath.Join(t.TempDir(), "cache.db")
	every := 1
	if testing.Short() {
		every = 6
	}
	tried, overruled, whole := 0, 0, contentOf(t, sample, keys)
	try := func(what string, change func(put func(bucket string, k, v []byte) error) error) {
		if tried++; tried%every != 0 {
			return
		}
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		edit(t, path, func(tx *bbolt.Tx) error {
			return change(func(bucket string, k, v []byte) error {
				if v == nil {
					return bucketAt(tx, bucket).Delete(k)
				}
				return bucketAt(tx, bucket).Put(k, v)
			})
		})
		require.Empty(t, served(t, path, keys, versions), what)
		report, err := bolt.Check(path, keys, nil)
		if err != nil {
			require.ErrorAs(t, err, new(*store.CorruptionError), what)
			return
		}
		if report.OK() {
			overruled++
			require.Equal(t, whole, contentOf(t, path, keys), what)
		}
	}
	for _, bucket := range buckets {
		if bucket == "meta" {
			continue
		}
		of := entries[bucket]
		for i, e := range of {
			k, v := e[0], e[1]
			what := fmt.Sprintf("%s %x", bucket, k)
			set := func(changed []byte) func(func(string, []byte, []byte) error) error {
				return func(put func(string, []byte, []byte) error) error { return put(bucket, k, changed) }
			}
			if len(v) > 0 {
				for _, at := range []int{0, 12, len(v) / 2, len(v) - 1} {
					flipped := bytes.Clone(v)
					flipped[at] ^= 0x40
					try(fmt.Sprint(what, ": bit at ", at), set(flipped))
				}
				try(what+": cut", set(v[:len(v)-1]))
				try(what+": empty", set([]byte{}))
				try(what+": in clear", set(plainRecord))
				other := of[(i+1)%len(of)]
				if len(of) > 1 {
					try(what+": swapped", func(put func(string, []byte, []byte) error) error {
						return errors.Join(put(bucket, k, other[1]), put(bucket, other[0], v))
					})
				}
			}
			if strings.HasSuffix(bucket, "/objects") || strings.Contains(bucket, "/index/") {
				if !strings.HasSuffix(bucket, "/mine") { // Check does not know its function, so not its entries
					try(what+": lost", set(nil))
				}
				try(what+": name", func(put func(string, []byte, []byte) error) error {
					name := bytes.Clone(k)
					name[len(name)/2] ^= 1
					return errors.Join(put(bucket, k, nil), put(bucket, name, v))
				})
				try(what+": another name", func(put func(string, []byte, []byte) error) error {
					return put(bucket, []byte("shop/o-99"), v)
				})
			}
		}
	}
	require.Greater(t, tried, 500)
	require.Less(t, overruled, tried/5)
	t.Log(tried, "changes, overruled by the journal:", overruled)
}

// A tampered record is counted when it is read, and a list repairs it; one that was moved to a key
// without an object is deleted there.
func TestTampering_ListRepairs(t *testing.T) {
	keys := bolt.Keyring{Primary: newKey(1)}
	path := sampleFileUnder(t, keys)
	_, entries := entriesOf(t, path)
	of := entries["c/pods/g1/objects"]
	edit(t, path, func(tx *bbolt.Tx) error {
		b := bucketAt(tx, "c/pods/g1/objects")
		name := bytes.Clone(of[20][0])
		name[3] ^= 1
		return errors.Join(b.Put(of[0][0], of[1][1]), b.Put(of[1][0], of[0][1]), b.Delete(of[20][0]), b.Put(name, of[20][1]))
	})
	corrupt := map[string]bool{}
	db := openDB(t, path, bolt.Options{Keys: keys, OnCorrupt: func(_, key string) { corrupt[key] = true }})
	defer db.Close()
	c := openCollection(t, db, storetest.Info("pods"), append(lifeIndexes(), mine)...)
	v, err := c.View()
	require.NoError(t, err)
	broken := 0
	var moved string
	for h, err := range v.Headers("", "") {
		if err == nil {
			continue
		}
		broken++
		require.ErrorAs(t, err, new(*store.CorruptionError))
		require.True(t, corrupt[h.Key], h.Key)
		if strings.HasPrefix(h.Key, "sitd/") {
			moved = h.Key
		}
	}
	v.Close()
	require.NotEmpty(t, moved)
	require.GreaterOrEqual(t, broken, 1)
	require.LessOrEqual(t, broken, 3, "some may have newer ones in the journal")

	changes := []store.Change{storetest.Delete(moved)}
	for i := range 41 {
		changes = append(changes, storetest.Put(sampleObject(i, i+300)))
	}
	replaceAll(t, c, changes, 1000)
	require.NoError(t, db.Close())
	report := checkReport(t, path, keys)
	require.Empty(t, report.Problems)
	require.EqualValues(t, 41, report.Collections[1].Objects)
}

// A whole file in clear with the header of an encrypted one is refused, and so is the reverse.
func TestTampering_Header(t *testing.T) {
	keys := bolt.Keyring{Primary: newKey(1)}
	for _, c := range []struct {
		name   string
		change func(meta *bbolt.Bucket) error
	}{
		{"format", func(meta *bbolt.Bucket) error { return meta.Put([]byte("format"), []byte{0, 0, 0, 1}) }},
		{"no head", func(meta *bbolt.Bucket) error { return meta.Delete([]byte("encryption")) }},
		{"cut", func(meta *bbolt.Bucket) error {
			return meta.Put([]byte("encryption"), meta.Get([]byte("encryption"))[:20])
		}},
		{"salt", func(meta *bbolt.Bucket) error { return flipAt(meta, "encryption", 20) }},
		{"check", func(meta *bbolt.Bucket) error { return flipAt(meta, "encryption", 60) }},
		{"its form", func(meta *bbolt.Bucket) error { return flipAt(meta, "encryption", 0) }},
	} {
		path := sampleFileUnder(t, keys)
		edit(t, path, func(tx *bbolt.Tx) error { return c.change(tx.Bucket([]byte("meta"))) })
		_, err := bolt.Open(path, bolt.Options{Keys: keys})
		require.ErrorAs(t, err, new(*store.CorruptionError), c.name)
	}
}

func flipAt(b *bbolt.Bucket, key string, at int) error {
	v := bytes.Clone(b.Get([]byte(key)))
	v[at] ^= 1
	return b.Put([]byte(key), v)
}

// A value is accepted only at its own address: neither in another collection under the same name,
// nor in clear with a matching checksum.
func TestTampering_MovedValue_IsRefused(t *testing.T) {
	keys := bolt.Keyring{Primary: newKey(1)}
	sealed := func(keys bolt.Keyring, payloads map[string]string) string {
		path := filepath.Join(t.TempDir(), "cache.db")
		db := openDB(t, path, bolt.Options{Keys: keys})
		for id, payload := range payloads {
			c := openCollection(t, db, storetest.Info(id))
			replaceAll(t, c, []store.Change{storetest.Put(storetest.Object("shop", "a", "u", "5", nil, payload))}, 9)
		}
		require.NoError(t, db.Close())
		return path
	}
	const objects = "c/pods/g1/objects"
	planted := valueAt(t, sealed(bolt.Keyring{}, map[string]string{"pods": "planted"}), objects, "shop/a")
	require.NotEmpty(t, planted)
	path := sealed(keys, map[string]string{"pods": "of pods", "nodes": "of nodes"})
	was := readFile(t, path)
	of := func(id string) [2][]byte { _, all := entriesOf(t, path); return all["c/"+id+"/g1/objects"][0] }
	name, other := of("pods")[0], of("nodes")[1]
	for _, tc := range []struct {
		name  string
		value []byte
	}{{"of another collection", other}, {"in clear", planted}} {
		require.NoError(t, os.WriteFile(path, was, 0o600))
		edit(t, path, func(tx *bbolt.Tx) error { return bucketAt(tx, objects).Put(name, tc.value) })
		db := openDB(t, path, bolt.Options{ReadOnly: true, Keys: keys})
		v := view(t, db, "pods")
		_, err := v.Get("shop/a")
		require.ErrorAs(t, err, new(*store.CorruptionError), tc.name)
		_, err = v.Raw("shop/a", nil)
		require.ErrorAs(t, err, new(*store.CorruptionError), tc.name)
		v.Close()
		require.NoError(t, db.Close())
	}
}
