package bolt_test

import (
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
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

// The golden databases are of format 1, and of format 3, which is the same encrypted with key
// number 7. Later versions must read them for as long as they read these formats: they are made
// again only while no version is released.
var goldenFiles = []struct {
	file string
	keys bolt.Keyring
}{
	{"testdata/golden-v1.db.gz", bolt.Keyring{}},
	{"testdata/golden-v3.db.gz", bolt.Keyring{Primary: newKey(7)}},
}

var update = flag.Bool("update", false, "make the golden database again")

var goldenTime = time.Date(2026, 1, 2, 3, 4, 5, 600_700_800, time.UTC)

// goldenPods has the list and the batches that made the pods of the golden database.
func goldenPods() (list []store.Change, listed store.Checkpoint, batches []store.Batch) {
	for i := range 30 {
		list = append(list, storetest.Put(goldenPod(i, 1000+i)))
	}
	listed = store.Checkpoint{RV: "1100", Cluster: "uid:11112222-3333", ListReason: "expired", LastList: goldenTime}
	middle, last := listed, listed
	middle.RV, middle.LastEvent = "1202", goldenTime.Add(time.Second)
	last.RV, last.LastEvent, last.LastBookmark = "1204", goldenTime.Add(2*time.Second), goldenTime.Add(time.Second)
	return list, listed, []store.Batch{
		{Checkpoint: middle, Changes: []store.Change{
			storetest.Put(goldenPod(5, 1201)), storetest.Put(goldenPod(6, 1202)), // the latter deleted and made again
			{Key: "shop/till-03", RV: "1198"}, storetest.Delete("shop/till-04"), storetest.Put(goldenPod(8, 1199)),
		}},
		{Checkpoint: last, Changes: []store.Change{storetest.Put(goldenPod(7, 1203)), storetest.Put(goldenPod(8, 1204))}},
	}
}

// goldenModels are the collections of the golden database. Their functions share nothing with the
// helpers of other tests, so that the helpers can change and the database can't.
func goldenModels() map[string]*storetest.Model {
	pods := storetest.NewModel(store.Info{
		ID: "pods@shop", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true, Namespace: "shop",
		LabelSelector: "tier=edge", FieldSelector: "spec.nodeName=edge-1", Transform: "metadata.managedFields",
	}, store.LabelIndex("app", "app"), store.FieldIndex("node", "spec.nodeName"))
	first, listed, batches := goldenPods()
	pods.Replace(pods.Info, first, listed)
	for _, b := range batches {
		pods.Apply(b)
	}
	classes := storetest.NewModel(store.Info{ID: "priorityclasses.scheduling.k8s.io", Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses", Kind: "PriorityClass"})
	classes.Replace(classes.Info, []store.Change{storetest.Put(goldenClass("a")), storetest.Put(goldenClass("b"))},
		store.Checkpoint{RV: "77", Cluster: "uid:11112222-3333", LastList: goldenTime, ListReason: "initial"})
	never := storetest.NewModel(store.Info{ID: "secrets", Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true})
	return map[string]*storetest.Model{pods.Info.ID: pods, classes.Info.ID: classes, never.Info.ID: never}
}

func mustParse(raw string) *object.Object {
	o, err := object.Parse([]byte(raw))
	if err != nil {
		panic(err)
	}
	return o
}

func goldenPod(i, rv int) *object.Object {
	uid := i
	if i == 6 && rv > 1100 {
		uid = 600 // deleted and made again
	}
	return mustParse(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"till-%02d","namespace":"shop","uid":"0000-%04d","resourceVersion":"%d",`+
		`"labels":{"app":"%s","tier":"edge"}},"spec":{"nodeName":"edge-1","containers":[{"name":"main","image":"till:%d.%d"}]},"status":{"phase":"Running"}}`,
		i, uid, rv, []string{"till", "camera", ""}[i%3], rv/100, i))
}

// goldenClass is so small that it is not compressed.
func goldenClass(name string) *object.Object {
	return mustParse(`{"kind":"PriorityClass","metadata":{"name":"` + name + `"}}`)
}

// writeGolden makes the golden database: a generation that is not the first one, a leftover of
// another, compressed and raw records, and a journal of two entries.
func writeGolden(t *testing.T, path string, keys bolt.Keyring) {
	live := filepath.Join(t.TempDir(), "live.db")
	db := openDB(t, live, bolt.Options{FlushInterval: time.Hour, ReplaceBudget: 1, Writer: "golden", Keys: keys})
	models := goldenModels()
	open := func(id string) store.Collection {
		c := openCollection(t, db, models[id].Info, models[id].Indexes...)
		return c
	}
	pods, classes := open("pods@shop"), open("priorityclasses.scheduling.k8s.io")
	open("secrets")
	replace := func(c store.Collection, changes []store.Change, cp store.Checkpoint) {
		r, err := c.Replace()
		require.NoError(t, err)
		require.NoError(t, r.Apply(changes))
		require.NoError(t, r.Commit(cp))
	}
	list, listed, batches := goldenPods()
	replace(pods, list, listed)
	replace(classes, []store.Change{storetest.Put(goldenClass("a")), storetest.Put(goldenClass("b"))}, models["priorityclasses.scheduling.k8s.io"].Checkpoint)

	// A list that a crash interrupts.
	r, err := classes.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply([]store.Change{storetest.Put(goldenClass("c"))}))

	for _, b := range batches {
		require.NoError(t, pods.Apply(b))
		require.NoError(t, db.Flush())
	}
	raw := readFile(t, live)
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	require.NoError(t, r.Abort())
	require.NoError(t, db.Close())
	bdb := openRaw(t, path, nil)
	require.NoError(t, bdb.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		last := append(binary.BigEndian.AppendUint64(nil, uint64(tx.ID())), 0)
		return errors.Join(
			meta.Put([]byte("created"), []byte("2026-01-02T03:04:05Z")),
			meta.Put([]byte("last"), append(last, "00000000-0000-4000-8000-000000000000"...)),
		)
	}))
	require.NoError(t, bdb.Close())
}

func golden(t *testing.T, file string, keys bolt.Keyring) string {
	if *update {
		path := filepath.Join(t.TempDir(), "new.db")
		writeGolden(t, path, keys)
		raw := readFile(t, path)
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		require.NoError(t, err)
		_, err = w.Write(raw)
		require.NoError(t, errors.Join(err, w.Close()))
		require.NoError(t, os.WriteFile(file, packed.Bytes(), 0o644))
	}
	return storetest.Gunzip(t, file)
}

// TestGolden reads the golden database with the current code: as it is, and after a fold.
func TestGolden(t *testing.T) {
	for _, g := range goldenFiles {
		t.Run(filepath.Base(g.file), func(t *testing.T) { readGolden(t, golden(t, g.file, g.keys), g.keys) })
	}
}

func readGolden(t *testing.T, path string, keys bolt.Keyring) {
	report := checkReport(t, path, keys)
	require.Empty(t, report.Problems)
	require.EqualValues(t, 2, report.JournalEntries)
	require.Equal(t, "golden", report.Writer)
	for _, readOnly := range []bool{true, false, true} {
		db := openDB(t, path, bolt.Options{ReadOnly: readOnly, Keys: keys})
		require.NoError(t, db.JournalCorruption())
		infos, err := db.Collections()
		require.NoError(t, err)
		require.Len(t, infos, 3)
		for id, model := range goldenModels() {
			if !readOnly {
				openCollection(t, db, model.Info, model.Indexes...)
			}
			v := view(t, db, id)
			model.Equal(t, v)
			v.Close()
		}
		require.NoError(t, db.Close())
	}
}

// TestFormat reads the golden database, and one that the current code writes, with a reader made
// only from docs/file-format.md. If it fails, either the page is wrong or the format was changed,
// and then the version of the format has to change too.
func TestFormat(t *testing.T) {
	for _, g := range goldenFiles {
		fresh := filepath.Join(t.TempDir(), "fresh.db")
		writeGolden(t, fresh, g.keys)
		var secret []byte
		if g.keys.Primary != nil {
			secret = bytes.Repeat([]byte{7}, 32)
		}
		// A deletion of a list whose resourceVersion is unknown was filed under the highest free one when
		// the golden files were written, and is under the lowest now.
		t.Run(filepath.Base(g.file), func(t *testing.T) { readFormat(t, golden(t, g.file, g.keys), secret, "1200", "1197") })
		t.Run(filepath.Base(g.file)+", fresh", func(t *testing.T) { readFormat(t, fresh, secret, "1197", "1200") })
	}
}

// readFormat reads a golden database. unknown and replaced are the resourceVersions under which the history
// has the deletion at an unknown one, and that of an object with a successor.
func readFormat(t *testing.T, path string, secret []byte, unknown, replaced string) {
	p := readPlainly(t, path, secret)
	require.Equal(t, "snapcache", string(p.cells["meta\x00magic"]))
	format := byte(1)
	if secret != nil {
		format = 3
	}
	require.Equal(t, []byte{0, 0, 0, format}, p.cells["meta\x00format"])
	require.Equal(t, "2026-01-02T03:04:05Z", string(p.cells["meta\x00created"]))
	require.Equal(t, "golden", string(p.cells["meta\x00writer"]))
	require.Len(t, p.cells["meta\x00epoch"], 8)
	require.Equal(t, p.tx, binary.BigEndian.Uint64(p.cells["meta\x00last"]))
	require.Zero(t, p.cells["meta\x00last"][8])
	require.Equal(t, "00000000-0000-4000-8000-000000000000", string(p.cells["meta\x00last"][9:]))
	require.Equal(t, uint64(2), p.journal)
	for id, model := range goldenModels() {
		p.compare(t, id, model)
	}
	p.compareHistory(t, "pods@shop", map[string]string{
		replaced: "deleted shop/till-06 +1  false", // the change of the new one covers it
		"1198":   "deleted shop/till-03 +1  false",
		unknown:  "deleted shop/till-04 +1  false", // the time of the deletion is unknown
		"1201":   "put shop/till-05 +1  false",
		"1202":   "put shop/till-06 +1 1202 true",
		"1203":   "put shop/till-07 +2  false",
		"1204":   "put shop/till-08 +2  false",
	}, "1100")
	p.compareHistory(t, "secrets", map[string]string{}, "")
	codec, first := p.record(t, "pods@shop", "shop/till-05")
	require.EqualValues(t, 1, codec)
	require.Equal(t, "1005", first, "a change keeps it")
	_, first = p.record(t, "pods@shop", "shop/till-06")
	require.Equal(t, "1202", first, "another object does not")
	codec, _ = p.record(t, "priorityclasses.scheduling.k8s.io", "a")
	require.EqualValues(t, 0, codec)
}

// plain is a database as docs/file-format.md describes to read it.
type plain struct {
	cells   map[string][]byte // by address, the journal over the buckets
	journal uint64            // entries
	tx      uint64            // the newest transaction
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(parts ...[]byte) uint32 { return crc32.Checksum(bytes.Join(parts, nil), castagnoli) }

func readPlainly(t *testing.T, path string, secret []byte) *plain {
	p := &plain{cells: map[string][]byte{}}
	db := openRaw(t, path, &bbolt.Options{ReadOnly: true})
	defer db.Close()
	require.Equal(t, 4096, db.Info().PageSize)
	open := func(_ string, _, v []byte) []byte { return v }
	var walk func(path string, b *bbolt.Bucket) error
	walk = func(path string, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return walk(path+"\x01"+string(k), b.Bucket(k))
			}
			p.cells[path+"\x00"+string(k)] = append([]byte{}, open(path, k, v)...)
			return nil
		})
	}
	dec, err := zstd.NewReader(nil)
	require.NoError(t, err)
	defer dec.Close()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		p.tx = uint64(tx.ID())
		if secret != nil {
			open = opener(t, secret, bytes.Clone(tx.Bucket([]byte("meta")).Get([]byte("encryption"))))
		}
		if err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk(string(name), b) }); err != nil {
			return err
		}
		journal := tx.Bucket([]byte("journal"))
		if journal == nil {
			return nil
		}
		return journal.ForEach(func(k, _ []byte) error {
			v := open("journal\x01"+string(k), []byte("entry"), journal.Bucket(k).Get([]byte("entry")))
			p.journal++
			require.Equal(t, p.journal, binary.BigEndian.Uint64(k))
			require.EqualValues(t, 1, v[0])
			require.Equal(t, sum(k, v[:1], v[5:]), binary.LittleEndian.Uint32(v[1:]))
			raw, err := dec.DecodeAll(v[5:], nil)
			require.NoError(t, err)
			for len(raw) > 0 {
				var addr, value []byte
				addr, raw = take(raw)
				deleted := raw[0]
				if raw = raw[1:]; deleted == 1 {
					delete(p.cells, string(addr))
					continue
				}
				require.Zero(t, deleted)
				value, raw = take(raw)
				p.cells[string(addr)] = append([]byte{}, value...)
			}
			return nil
		})
	}))
	return p
}

// opener decrypts the values of an encrypted file. head is the value meta/encryption.
func opener(t *testing.T, secret, head []byte) func(path string, k, v []byte) []byte {
	require.Len(t, head, 41+28)
	require.EqualValues(t, 1, head[0])
	id, err := hkdf.Key(sha256.New, secret, nil, "snapcache key id", 8)
	require.NoError(t, err)
	require.Equal(t, id, head[1:9])
	derive := func(info string, length int) []byte {
		key, err := hkdf.Key(sha256.New, secret, head[9:41], info, length)
		require.NoError(t, err)
		return key
	}
	block, err := aes.NewCipher(derive("snapcache values", 32))
	require.NoError(t, err)
	values, err := cipher.NewGCM(block)
	require.NoError(t, err)
	_, err = values.Open(nil, head[41:53], head[53:], append([]byte("meta\x00encryption"), head[:41]...))
	require.NoError(t, err)
	return func(path string, k, v []byte) []byte {
		parts := strings.Split(path, "\x01")
		if parts[0] == "meta" || len(parts) == 5 {
			return v
		}
		content, err := values.Open(nil, v[:12], v[12:], []byte(path+"\x00"+string(k)))
		require.NoError(t, err, path)
		return content
	}
}

// take cuts a value behind its length off b.
func take(b []byte) (value, rest []byte) {
	n, size := binary.Uvarint(b)
	return b[size : size+int(n)], b[size+int(n):]
}

func takeString(b []byte) (value string, rest []byte) {
	v, rest := take(b)
	return string(v), rest
}

// table returns the keys and values of a bucket.
func (p *plain) table(path ...string) map[string][]byte {
	table := map[string][]byte{}
	for addr, v := range p.cells {
		if key, ok := strings.CutPrefix(addr, strings.Join(path, "\x01")+"\x00"); ok {
			table[key] = v
		}
	}
	return table
}

// sealed returns the content of a value that has a checksum in front.
func (p *plain) sealed(t *testing.T, id, name string, b []byte) []byte {
	require.Greater(t, len(b), 4)
	require.Equal(t, sum([]byte(id), []byte{0}, []byte(name), []byte{0}, b[4:]), binary.LittleEndian.Uint32(b))
	return b[4:]
}

func (p *plain) generation(t *testing.T, id string) string {
	return fmt.Sprintf("g%d", binary.BigEndian.Uint64(p.sealed(t, id, "gen", p.table("c", id)["gen"])))
}

func (p *plain) compare(t *testing.T, id string, m *storetest.Model) {
	head := p.table("c", id)
	var info store.Info
	require.NoError(t, json.Unmarshal(p.sealed(t, id, "info", head["info"]), &info))
	require.Equal(t, m.Info, info)
	var state store.State
	require.NoError(t, json.Unmarshal(p.sealed(t, id, "state", head["state"]), &state))
	require.Equal(t, m.State(), state)
	if dict, ok := head["dict"]; ok {
		require.Contains(t, p.table("dict"), string(p.sealed(t, id, "dict", dict)))
	}

	gen := p.generation(t, id)
	objects := p.table("c", id, gen, "objects")
	require.Len(t, objects, len(m.Objects))
	for key, o := range m.Objects {
		require.Equal(t, string(o.Raw()), p.object(t, key, objects[key], o))
	}
	specs := map[string]string{}
	require.NoError(t, json.Unmarshal(p.sealed(t, id, "indexes", p.table("c", id, gen)["indexes"]), &specs))
	require.Len(t, specs, len(m.Indexes))
	for _, x := range m.Indexes {
		require.Equal(t, x.Spec, specs[x.Name])
		entries := p.table("c", id, gen, "index", x.Name)
		want := m.Entries(x)
		require.Len(t, entries, len(want))
		for _, e := range want {
			require.Contains(t, entries, e.Value+"\x00"+e.Key)
			require.Empty(t, entries[e.Value+"\x00"+e.Key])
		}
	}
}

// compareHistory decodes the history.
func (p *plain) compareHistory(t *testing.T, id string, want map[string]string, horizon string) {
	gen := p.generation(t, id)
	var head struct {
		ResourceVersion, Attributes, AttributesSince string
		Entries, Bytes                               int
	}
	require.NoError(t, json.Unmarshal(p.sealed(t, id, "history", p.table("c", id, gen)["history"]), &head))
	require.Equal(t, horizon, head.ResourceVersion+head.Attributes+head.AttributesSince)
	got, size := map[string]string{}, 0
	feed, tombs := p.table("c", id, gen, "feed"), p.table("c", id, gen, "tombs")
	for k, b := range feed {
		require.EqualValues(t, len(k)-1, k[0])
		require.Equal(t, sum([]byte(k), b[4:]), binary.LittleEndian.Uint32(b))
		size += len(k) + len(b)
		at, n := binary.Uvarint(b[5:])
		rest := b[5+n:]
		since, n := binary.Uvarint(rest)
		first, key := take(rest[n:])
		rows := ""
		if b[4]&2 != 0 {
			key, rest = take(key)
			rows, rest = takeString(rest)
			rows = " since " + rows
			for len(rest) > 0 {
				var row string
				row, rest = takeString(rest)
				rows += ", " + row + ":"
				count, n := binary.Uvarint(rest)
				rest = rest[n:]
				for range count {
					row, rest = takeString(rest)
					rows += " " + row
				}
			}
		}
		what := "put"
		if b[4]&1 != 0 {
			what = "deleted"
			require.Contains(t, tombs, k)
			size += len(k) + len(tombs[k])
		}
		got[k[1:]] = fmt.Sprintf("%s %s +%d %s %v%s", what, key, int64(at)-goldenTime.Unix(), first, since != 0, rows)
	}
	require.Equal(t, want, got)
	require.Equal(t, []int{len(feed), size}, []int{head.Entries, head.Bytes})
}

// object decodes a record.
func (p *plain) object(t *testing.T, key string, b []byte, want *object.Object) string {
	require.EqualValues(t, 1, b[0])
	require.Equal(t, sum([]byte(key), b[:2], b[6:]), binary.LittleEndian.Uint32(b[2:]))
	dict, n := binary.Uvarint(b[6:])
	rest := b[6+n:]
	size, n := binary.Uvarint(rest)
	uid, rest := take(rest[n:])
	rv, rest := take(rest)
	_, payload := take(rest)
	require.Equal(t, string(want.GetUID()), string(uid))
	require.Equal(t, want.GetResourceVersion(), string(rv))
	require.EqualValues(t, want.Size(), size)
	if b[1] == 0 {
		return string(payload)
	}
	require.EqualValues(t, 1, b[1])
	id := binary.BigEndian.AppendUint32(nil, uint32(dict))
	stored := p.table("dict")[string(id)]
	require.EqualValues(t, 1, stored[0])
	require.Equal(t, sum(id, stored[:1], stored[5:]), binary.LittleEndian.Uint32(stored[1:]))
	dec, err := zstd.NewReader(nil, zstd.WithDecoderDictRaw(uint32(dict), stored[5:]))
	require.NoError(t, err)
	defer dec.Close()
	raw, err := dec.DecodeAll(payload, nil)
	require.NoError(t, err)
	return string(raw)
}

// record returns the codec of a record and the RV at which its object appeared.
func (p *plain) record(t *testing.T, id, key string) (codec byte, firstRV string) {
	b := p.table("c", id, p.generation(t, id), "objects")[key]
	require.NotEmpty(t, b)
	rest := b[6:]
	for range 2 {
		_, n := binary.Uvarint(rest)
		rest = rest[n:]
	}
	for range 2 {
		_, rest = take(rest)
	}
	first, _ := take(rest)
	return b[1], string(first)
}
