package bolt_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// newKey returns the key number n.
func newKey(n byte) *bolt.EncryptionKey {
	k, err := bolt.ParseKey(keyText(n))
	if err != nil {
		panic(err)
	}
	return k
}

func keyText(n byte) []byte {
	return []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)) + "\n")
}

// marked makes objects that are full of words which occur nowhere else.
type marked struct {
	random *rand.Rand
	words  []string // content
	names  []string // names and index values, which are keys of the file
	rv     int
}

// word returns a new word for content.
func (m *marked) word() string {
	m.words = append(m.words, m.letters())
	return m.words[len(m.words)-1]
}

// name returns a new word for a name or an index value.
func (m *marked) name() string {
	m.names = append(m.names, m.letters())
	return m.names[len(m.names)-1]
}

func (m *marked) letters() string {
	b := make([]byte, 20)
	for i := range b {
		b[i] = byte('a' + m.random.IntN(26))
	}
	return string(b)
}

func (m *marked) object(namespace, name string) *object.Object {
	m.rv++
	return mustParse(fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":"%d","labels":{"app":%q,%q:"x"}},"data":{"payload":%q}}`,
		namespace, name, m.word(), m.rv, m.name(), m.word(), m.word()+strings.Repeat("z", 100)))
}

// found returns the words of content of which a piece is in raw, in clear or compressed.
func (m *marked) found(raw []byte) (found []string) {
	texts := [][]byte{raw}
	dec, _ := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(1<<24), zstd.WithDecoderConcurrency(1))
	defer dec.Close()
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	for at := bytes.Index(raw, magic); at >= 0; {
		if text, _ := dec.DecodeAll(raw[at:], nil); len(text) > 0 { // the text before an error counts
			texts = append(texts, text)
		}
		next := bytes.Index(raw[at+1:], magic)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	for _, word := range m.words {
		// compressed text has only pieces of a word
		for _, piece := range []string{word[:10], word[10:], base64.StdEncoding.EncodeToString([]byte(word[:9]))} {
			for _, text := range texts {
				if bytes.Contains(text, []byte(piece)) {
					found = append(found, word)
				}
			}
		}
	}
	return found
}

// fill uses all operations on a database, and returns its copies.
func (m *marked) fill(t *testing.T, dir string, opts bolt.Options) (files map[string][]byte) {
	files = map[string][]byte{}
	path := filepath.Join(dir, "cache.db")
	opts.FlushInterval = time.Hour
	db, err := bolt.OpenByHand(path, opts)
	require.NoError(t, err)
	look := func(when string) { files[when] = readFile(t, path) }
	c := openCollection(t, db, storetest.Info("pods"), store.LabelIndex("app", "app"))
	namespaces := []string{m.name(), m.name()}
	var all []store.Change
	for i := range 60 {
		all = append(all, storetest.Put(m.object(namespaces[i%2], m.name())))
	}
	replaceAll(t, c, all, 1000)
	look("listed")
	m.rv = 1000
	var batch []store.Change
	for i := range 20 {
		batch = append(batch, storetest.Put(m.object(namespaces[0], m.name())))
		batch = append(batch, store.Change{Key: all[i].Key, RV: fmt.Sprint(1100 + i)})
		batch = append(batch, storetest.Put(m.object(namespaces[1], all[21+2*i].Object.GetName())))
	}
	m.rv = 1200
	cp := storetest.Checkpoint(m.rv)
	cp.Newest = [store.NewestKeys]string{all[30].Key, all[31].Key}
	require.NoError(t, c.Apply(store.Batch{Changes: batch, Checkpoint: cp}))
	require.NoError(t, db.Flush())
	look("flushed")
	require.NoError(t, db.Fold())
	look("folded")

	// A dropped and a new index, and the leftovers of both after a crash.
	indexes := []store.Index{store.FieldIndex("name", "metadata.name"), store.FieldIndex("ns", "metadata.namespace")}
	require.NoError(t, c.Reopen(storetest.Info("pods"), indexes...))
	look("indexes")
	_, err = db.BuildStep(3)
	require.NoError(t, err)
	look("building")
	steps(t, db, 3)
	require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{storetest.Put(m.object(m.name(), m.name()))}, Checkpoint: storetest.Checkpoint(m.rv)}))
	hot := filepath.Join(dir, "hot.db")
	hotCopyTo(t, db, hot)
	files["copy"] = readFile(t, hot)
	_, _, err = db.Compact(t.Context())
	require.NoError(t, err)
	require.NoError(t, db.Close())
	look("closed")
	_, _, err = bolt.Compact(path, opts)
	require.NoError(t, err)
	look("compacted")
	return files
}

// TestEncryption_NoContentOnDisk fills a database with marked words and searches for them in all
// files that it leaves on the disk. Names and index values are there, content is not.
func TestEncryption_NoContentOnDisk(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts bolt.Options
	}{{"memory", bolt.Options{}}, {"generations", bolt.Options{ReplaceBudget: 1}}} {
		t.Run(tc.name, func(t *testing.T) {
			tc.opts.Keys.Primary = newKey(1)
			m := &marked{random: rand.New(rand.NewPCG(1, 1))}
			for when, raw := range m.fill(t, t.TempDir(), tc.opts) {
				require.Empty(t, m.found(raw), when)
				require.NotContains(t, string(raw), "ConfigMap", when)
				require.Contains(t, string(raw), m.names[0], when)
			}

			// Without a key all of the words are there, which shows that the search works.
			tc.opts.Keys.Primary = nil
			m = &marked{random: rand.New(rand.NewPCG(1, 1))}
			for when, raw := range m.fill(t, t.TempDir(), tc.opts) {
				require.NotEmpty(t, m.found(raw), when)
			}
		})
	}
}

// An encrypted file has the buckets and keys of one in clear, and the same index entries; no value
// of another bucket but meta is in clear.
func TestEncryption_CoversValues(t *testing.T) {
	buckets, plain := entriesOf(t, sampleFile(t))
	sealedBuckets, sealed := entriesOf(t, sampleFileUnder(t, bolt.Keyring{Primary: newKey(1)}))
	require.Equal(t, buckets, sealedBuckets)
	values := 0
	for _, bucket := range buckets {
		if bucket == "meta" {
			continue
		}
		require.Len(t, sealed[bucket], len(plain[bucket]), bucket)
		for i, e := range plain[bucket] {
			require.Equal(t, e[0], sealed[bucket][i][0], bucket)
			if strings.Contains(bucket, "/index/") {
				require.Empty(t, sealed[bucket][i][1], bucket)
				continue
			}
			require.NotContains(t, string(sealed[bucket][i][1]), string(e[1]), bucket)
			values++
		}
	}
	require.Greater(t, values, 50)
}

// A file of format 2, in which names were encrypted too, is refused with the way out, and stays as
// it is.
func TestOpen_OldEncryptedFormat_IsRefused(t *testing.T) {
	keys := bolt.Keyring{Primary: newKey(1)}
	path := sampleFileUnder(t, keys)
	edit(t, path, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte{0, 0, 0, 2})
	})
	was := readFile(t, path)
	for _, open := range []func() error{
		func() error { _, err := bolt.Open(path, bolt.Options{Keys: keys}); return err },
		func() error { _, err := bolt.Open(path, bolt.Options{ReadOnly: true}); return err },
		func() error { _, err := bolt.Check(path, keys, nil); return err },
		func() error { _, _, err := bolt.Compact(path, bolt.Options{Keys: keys}); return err },
	} {
		err := open()
		require.ErrorIs(t, err, store.ErrOldFormat)
		require.ErrorContains(t, err, "delete the file, and its collections are listed again")
		require.Equal(t, was, readFile(t, path))
	}
}

// What an open and the first read of an encrypted file allocate does not grow with the number of
// objects.
func TestEncryption_OpenDoesNotGrowWithObjects(t *testing.T) {
	opts := bolt.Options{Keys: bolt.Keyring{Primary: newKey(1)}, FlushInterval: time.Hour}
	allocated := func(count int) uint64 {
		path := filepath.Join(t.TempDir(), "cache.db")
		db := openDB(t, path, opts)
		c := openCollection(t, db, storetest.Info("pods"), store.LabelIndex("app", "app"))
		var all []store.Change
		for i := range count {
			all = append(all, storetest.Put(sampleObject(i, i+1)))
		}
		replaceAll(t, c, all, count+1)
		require.NoError(t, db.Close())

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		db = openDB(t, path, opts)
		v := view(t, db, "pods")
		for _, err := range v.Objects("", "") {
			require.NoError(t, err)
			break
		}
		runtime.ReadMemStats(&after)
		v.Close()
		require.NoError(t, db.Close())
		return after.TotalAlloc - before.TotalAlloc
	}
	few := allocated(200)
	require.Less(t, allocated(10_000), 2*few, "%d bytes with 200 objects", few)
}

// If a key is missing or wrong, opening the file returns store.ErrKey, and the file stays as it is.
func TestWrongKey(t *testing.T) {
	path := sampleFileUnder(t, bolt.Keyring{Primary: newKey(1)})
	was := readFile(t, path)
	for _, tc := range []struct {
		text string
		keys bolt.Keyring
	}{
		{"it is encrypted with key " + newKey(1).ID() + ", and none was given", bolt.Keyring{}},
		{"it is encrypted with key " + newKey(1).ID() + ", what was given is " + newKey(2).ID() + ", " + newKey(3).ID(), bolt.Keyring{Primary: newKey(2), Previous: []*bolt.EncryptionKey{newKey(3)}}},
		{"no key for the database: it is encrypted with key " + newKey(1).ID() + ", what was given is " + newKey(4).ID(), bolt.Keyring{Previous: []*bolt.EncryptionKey{newKey(4)}}},
	} {
		for _, c := range []struct {
			name string
			open func() error
		}{
			{"open", func() error { _, err := bolt.Open(path, bolt.Options{Keys: tc.keys}); return err }},
			{"read only", func() error { _, err := bolt.Open(path, bolt.Options{ReadOnly: true, Keys: tc.keys}); return err }},
			{"check", func() error { _, err := bolt.Check(path, tc.keys, nil); return err }},
			{"compact", func() error { _, _, err := bolt.Compact(path, bolt.Options{Keys: tc.keys}); return err }},
		} {
			err := c.open()
			require.ErrorIs(t, err, store.ErrKey, c.name)
			require.ErrorContains(t, err, tc.text, c.name)
			require.ErrorContains(t, err, path, c.name)
			require.NotErrorAs(t, err, new(*store.CorruptionError), c.name)
			require.Equal(t, was, readFile(t, path), c.name)
		}
	}
	require.Equal(t, bolt.Crashed, bolt.LastShutdown(path), "LastShutdown needs no key")
	report := checkReport(t, path, bolt.Keyring{Previous: []*bolt.EncryptionKey{newKey(2), newKey(1)}})
	require.True(t, report.OK(), report.Problems)
	require.Equal(t, newKey(1).ID(), report.Key)
}

// If the key id in the file is corrupt, the error is corruption, not a missing key.
func TestCorruptKeyID(t *testing.T) {
	path := sampleFileUnder(t, bolt.Keyring{Primary: newKey(1)})
	edit(t, path, func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		head := bytes.Clone(meta.Get([]byte("encryption")))
		head[3] ^= 1
		return meta.Put([]byte("encryption"), head)
	})
	for _, keys := range []bolt.Keyring{{Primary: newKey(1)}, {Primary: newKey(2), Previous: []*bolt.EncryptionKey{newKey(3), newKey(1)}}} {
		_, err := bolt.Open(path, bolt.Options{Keys: keys})
		require.ErrorAs(t, err, new(*store.CorruptionError))
		require.ErrorContains(t, err, "the id of the key: it was changed")
		require.NotErrorIs(t, err, store.ErrKey)
	}
	_, err := bolt.Open(path, bolt.Options{Keys: bolt.Keyring{Primary: newKey(2)}})
	require.ErrorIs(t, err, store.ErrKey)
}

// An older version must refuse an encrypted file as one of an unknown format, and must read a file
// in clear.
func TestEncryption_FormatVersion(t *testing.T) {
	require.Equal(t, []byte{0, 0, 0, 1}, valueAt(t, sampleFile(t), "meta", "format"))
	require.Nil(t, valueAt(t, sampleFile(t), "meta", "encryption"))
	require.Equal(t, []byte{0, 0, 0, 3}, valueAt(t, sampleFileUnder(t, bolt.Keyring{Primary: newKey(1)}), "meta", "format"))
}

func TestReadKey(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode, text []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	k, err := bolt.ReadKey(write("good", 0o400, keyText(1)))
	require.NoError(t, err)
	require.Equal(t, newKey(1).ID(), k.ID())
	require.Len(t, k.ID(), 16)
	require.NotEqual(t, newKey(2).ID(), k.ID())
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(format, bolt.Options{Keys: bolt.Keyring{Primary: k}})
		require.NotContains(t, text, "1 1 1 1", format)
		require.NotContains(t, text, "1, 0x1", format)
	}

	for _, bad := range []struct {
		name string
		mode os.FileMode
		text []byte
		want string
	}{
		{"group", 0o440, keyText(1), "chmod 0400"},
		{"world", 0o604, keyText(1), "chmod 0400"},
		{"short", 0o600, keyText(1)[:40], "32 bytes as base64"},
		{"empty", 0o600, nil, "32 bytes as base64"},
		{"raw", 0o600, bytes.Repeat([]byte{1}, 32), "32 bytes as base64"},
		{"too long", 0o600, bytes.Repeat([]byte{'A'}, 4000), "no key file"},
	} {
		_, err := bolt.ReadKey(write(bad.name, bad.mode, bad.text))
		require.ErrorContains(t, err, bad.want, bad.name)
		require.NotContains(t, err.Error(), "AQEB", bad.name)
	}
	_, err = bolt.ReadKey(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = bolt.ReadKey(dir)
	require.Error(t, err)

	// A credential of systemd, which has the mode bits of a file that a group may read.
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	write("credential", 0o440, keyText(3))
	keys, err := bolt.ReadKeyring("credential", []string{filepath.Join(dir, "good")})
	require.NoError(t, err)
	require.Equal(t, newKey(3).ID(), keys.Primary.ID())
	require.Equal(t, newKey(1).ID(), keys.Previous[0].ID())
	_, err = bolt.ReadKey(filepath.Join(dir, "credential"))
	require.ErrorContains(t, err, "chmod 0400", "a path is no credential")
}
