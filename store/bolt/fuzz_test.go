package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// fuzzPatience is the time after which a reader of a file counts as hanging.
const fuzzPatience = 30 * time.Second

// FuzzOpen corrupts a small file, in clear or encrypted, and reads it, read-only. Whatever the
// corruption, Check returns a report or an error of a known kind, and no object is served that
// never was stored.
//
// damage is read four bytes at a time: an offset (three bytes, little endian, modulo the length of
// the file) and the bits that are flipped there. cut is how many bytes are missing at the end.
func FuzzOpen(f *testing.F) {
	keys := bolt.Keyring{Primary: newKey(1)}
	files := map[bool][]byte{false: usedPart(f, sampleFile(f)), true: usedPart(f, sampleFileUnder(f, keys))}
	at := func(offset int, xor byte) []byte {
		return []byte{byte(offset), byte(offset >> 8), byte(offset >> 16), xor}
	}
	// The seeds, which run in each test: a place in each part of each page, two places at once, and
	// files that are cut off.
	for encrypted, raw := range files {
		f.Add([]byte(nil), uint32(0), encrypted)
		f.Add([]byte(nil), uint32(4096), encrypted)
		f.Add([]byte(nil), uint32(len(raw)-8000), encrypted)
		parts := []int{0, 8, 10, 12, 16, 20, 24, 24 + 8, 28, 40, 48, 2000, 4090}
		if encrypted {
			parts = []int{10, 20, 28, 48, 2000} // if the pages do not differ by it, once is enough
		}
		for page := range len(raw) / 4096 {
			for _, in := range parts {
				f.Add(at(page*4096+in, 1), uint32(0), encrypted)
			}
			f.Add(append(at(page*4096+31, 0x40), at(page*4096+16, 1)...), uint32(0), encrypted)
		}
		f.Add(append(at(8, 1), at(4096+8, 1)...), uint32(0), encrypted)
	}

	stored := map[string]bool{}
	for i := range 41 {
		for _, rv := range []int{i + 1, 101, 103, 105, 107} {
			stored[string(sampleObject(i, rv).Raw())] = true
		}
	}
	stored[string(storetest.Object("", "edge-1", "u-1", "7", nil, "x").Raw())] = true

	f.Fuzz(func(t *testing.T, damage []byte, cut uint32, encrypted bool) {
		b := bytes.Clone(files[encrypted])
		for ; len(damage) >= 4; damage = damage[4:] {
			offset := int(damage[0]) | int(damage[1])<<8 | int(damage[2])<<16
			b[offset%len(b)] ^= damage[3]
		}
		b = b[:len(b)-int(cut)%len(b)]
		path := filepath.Join(t.TempDir(), "cache.db")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		done := make(chan string, 1)
		go func() { done <- readCorrupt(path, keys, stored) }()
		select {
		case wrong := <-done:
			if wrong != "" {
				t.Error(wrong)
			}
		case <-time.After(fuzzPatience):
			t.Fatal("reading does not end")
		}
	})
}

// usedPart returns a file without the spare room behind the last page in use.
func usedPart(f *testing.F, path string) []byte {
	raw := readFile(f, path)
	high := binary.LittleEndian.Uint64(raw[16+40:])
	if other := binary.LittleEndian.Uint64(raw[4096+16+40:]); other > high {
		high = other
	}
	return raw[:high*4096]
}

// readCorrupt reads a file in every possible way and returns a description of the first wrong
// result.
func readCorrupt(path string, keys bolt.Keyring, stored map[string]bool) (wrong string) {
	debug.SetPanicOnFault(true)
	report, err := bolt.Check(path, keys, nil)
	switch {
	case err == nil && report.Unsafe:
		return "" // no one opens it
	case err != nil && !isVerdict(err):
		return "Check: an error of an unknown kind: " + err.Error()
	case err != nil && report != nil:
		return "Check: a report and an error"
	}
	db, err := bolt.Open(path, bolt.Options{ReadOnly: true, Keys: keys})
	if err != nil {
		if !isVerdict(err) {
			return "Open: an error of an unknown kind: " + err.Error()
		}
		return ""
	}
	defer func() {
		if err := db.Close(); err != nil && wrong == "" {
			wrong = "Close: " + err.Error()
		}
	}()
	_, _ = db.Collections() // it may be corrupt
	for _, id := range []string{"pods", "nodes"} {
		v, err := db.View(id)
		if err != nil {
			continue
		}
		wrong = readView(v, stored)
		v.Close()
		if wrong != "" {
			return wrong
		}
	}
	return ""
}

func readView(v store.View, stored map[string]bool) string {
	for o, err := range v.Objects("", "") {
		if err == nil && !stored[string(o.Raw())] {
			return "Objects: never stored: " + string(o.Raw())
		}
	}
	var keys []string
	for h, err := range v.Headers("", "") {
		if err == nil {
			keys = append(keys, h.Key)
		}
	}
	for _, key := range keys {
		if o, err := v.Get(key); err == nil && (o.Key() != key || !stored[string(o.Raw())]) {
			return "Get: never stored: " + string(o.Raw())
		}
	}
	for e, err := range v.Changes("100") {
		if err == nil && (e.Object.Key() != e.Key || !stored[string(e.Object.Raw())]) {
			return "Changes: never stored: " + string(e.Object.Raw())
		}
	}
	for _, index := range append(v.Indexes(), store.NamespaceIndex) {
		for _, err := range v.IndexEntries(index, "", store.IndexEntry{}) {
			if err != nil && errors.Is(err, store.ErrNoIndex) {
				return "IndexEntries: " + err.Error()
			}
		}
	}
	return ""
}

func isVerdict(err error) bool {
	return errors.As(err, new(*store.CorruptionError)) || errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrNewerFormat) || errors.Is(err, store.ErrOldFormat) || errors.Is(err, store.ErrKey)
}
