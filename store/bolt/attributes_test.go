package bolt_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// appAttributes is an index of the history: the label app.
var appAttributes = store.Index{Name: "attributes", Spec: "app", History: true, Func: func(o *object.Object) []string {
	return []string{"app=" + o.Labels()["app"]}
}}

func withApp(name string, rv int, app string) store.Change {
	return storetest.Put(storetest.Object("ns", name, "u-"+name, fmt.Sprint(rv), map[string]string{"app": app}, incompressible(rv)))
}

// appsOf makes a closed database whose collection "a" has these batches after a list at 10.
func appsOf(t *testing.T, keys bolt.Keyring, batches ...[]store.Change) (path string) {
	db, path := newDB(t, bolt.Options{Keys: keys, HistoryRetention: 1 << 62})
	c := openCollection(t, db, storetest.Info("a"), appAttributes)
	replaceAll(t, c, []store.Change{withApp("x", 1, "a"), withApp("y", 2, "a")}, 10)
	for i, changes := range batches {
		cp := store.Checkpoint{RV: fmt.Sprint(20 + 10*i), LastEvent: goldenTime}
		require.NoError(t, c.Apply(store.Batch{Changes: changes, Checkpoint: cp}))
	}
	require.NoError(t, db.Close())
	return path
}

// appsAt returns a line for each change since a resourceVersion: the object's app at that time.
func appsAt(t *testing.T, db *bolt.DB, since string) (lines []string) {
	v := view(t, db, "a")
	defer v.Close()
	for e, err := range v.Changes(since) {
		if err != nil {
			lines = append(lines, "corrupt")
			continue
		}
		values, changed, known := e.AttributesAt("app", since)
		switch {
		case !known:
			values = []string{"unknown"}
		case !changed:
			values = appAttributes.Values(e.Object)
		}
		lines = append(lines, fmt.Sprint(e.RV, values))
	}
	return lines
}

// appsIn is appsAt for a file that is open for reading only, so that no function is known.
func appsIn(t *testing.T, path string, keys bolt.Keyring, since string) []string {
	db := openDB(t, path, bolt.Options{ReadOnly: true, Keys: keys})
	defer db.Close()
	return appsAt(t, db, since)
}

func requireChecked(t *testing.T, path string, keys bolt.Keyring) {
	t.Helper()
	report := checkReport(t, path, keys)
	require.Empty(t, report.Problems)
}

// The rows are in the file as docs/file-format.md describes them, and count as bytes of the history.
func TestAttributesInFile(t *testing.T) {
	for _, keys := range []bolt.Keyring{{}, {Primary: newKey(7)}} {
		path := appsOf(t, keys,
			[]store.Change{withApp("x", 11, "b"), withApp("y", 12, "a")},
			[]store.Change{withApp("x", 21, "c"), {Key: "ns/y", RV: "22"}},
			[]store.Change{withApp("x", 31, "c"), withApp("z", 32, "a")})
		requireChecked(t, path, keys)
		require.Equal(t, []string{"22[app=a]", "31[app=a]", "32[app=a]"}, appsIn(t, path, keys, "10"))
		require.Equal(t, []string{"22[app=a]", "31[app=b]", "32[app=a]"}, appsIn(t, path, keys, "20"))
		require.Equal(t, []string{"31[app=c]", "32[app=a]"}, appsIn(t, path, keys, "30"))
		var secret []byte
		if keys.Primary != nil {
			secret = bytes.Repeat([]byte{7}, 32)
		}
		p := readPlainly(t, path, secret)
		p.compareHistory(t, "a", map[string]string{
			"22": "deleted ns/y +0  false",
			"31": "put ns/x +0  false since , 11: app=a, 21: app=b",
			"32": "put ns/z +0 32 true",
		}, "10app10")
	}
}

// If the record that a change replaces is corrupt, or its entry in the history, what it was before
// is unknown; what it is from then on is known.
func TestAttributesOfCorruptRecord(t *testing.T) {
	for _, tc := range []struct {
		name   string
		bucket string
		keys   []string
		known  []string // at 20, 22 and 40
	}{
		{"record", "objects", []string{"ns/x"}, []string{"[unknown]", "[unknown]", "[app=d]"}},
		{"entry", "feed", []string{"\x0221", "\x0222"}, []string{"[unknown]", "[app=c]", "[app=d]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := appsOf(t, bolt.Keyring{}, []store.Change{withApp("x", 11, "b"), withApp("y", 12, "b")}, []store.Change{withApp("x", 21, "c"), withApp("y", 22, "c")})
			edit(t, path, func(tx *bbolt.Tx) error {
				b := bucketAt(tx, "c/a/g1/"+tc.bucket)
				for _, key := range tc.keys {
					raw := append([]byte{}, b.Get([]byte(key))...)
					raw[len(raw)-1] ^= 4
					if err := b.Put([]byte(key), raw); err != nil {
						return err
					}
				}
				return nil
			})
			db := openDB(t, path, bolt.Options{HistoryRetention: 1 << 62})
			defer db.Close()
			c := openCollection(t, db, storetest.Info("a"), appAttributes)
			apply := func(rv int, change store.Change) {
				cp := store.Checkpoint{RV: fmt.Sprint(rv), LastEvent: goldenTime}
				require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{change}, Checkpoint: cp}))
			}
			apply(40, withApp("x", 35, "d"))
			apply(50, withApp("x", 45, "e"))
			for i, since := range []string{"20", "22", "40"} {
				lines := appsAt(t, db, since)
				require.Equal(t, "45"+tc.known[i], lines[len(lines)-1], since)
			}
			if tc.name == "record" {
				return
			}
			apply(60, store.Change{Key: "ns/y", RV: "51"})
			for i, want := range []string{"[unknown]", "[app=c]"} {
				lines := appsAt(t, db, []string{"20", "22"}[i])
				require.Equal(t, "51"+want, lines[len(lines)-1])
			}
		})
	}
}

// Rows at or below the horizon go with the next change of their object, and their bytes too.
func TestAttributesAreTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, path := newDB(t, bolt.Options{HistoryRetention: time.Hour})
		c := openCollection(t, db, storetest.Info("a"), appAttributes)
		replaceAll(t, c, []store.Change{withApp("x", 1, "a"), withApp("y", 2, "a")}, 10)
		apply := func(rv int, changes ...store.Change) {
			require.NoError(t, c.Apply(store.Batch{Changes: changes, Checkpoint: now(rv)}))
		}
		apply(20, withApp("x", 11, "b"))
		apply(30, withApp("y", 21, "b"))
		time.Sleep(61 * time.Minute)
		apply(40, withApp("x", 31, "c"))
		require.NoError(t, db.Flush())
		require.Equal(t, "21", horizonOf(t, c).RV)
		require.Equal(t, []string{"31[app=b]"}, appsAt(t, db, "21"))
		apply(50, withApp("x", 41, "d"), withApp("y", 42, "c"))
		require.Equal(t, []string{"41[app=b]", "42[app=b]"}, appsAt(t, db, "21"))
		require.NoError(t, db.Close())
		p := readPlainly(t, path, nil)
		entry := string(p.table("c", "a", p.generation(t, "a"), "feed")["\x0241"])
		require.NotContains(t, entry, "app=a")
		require.Contains(t, entry, "app=b")
		requireChecked(t, path, bolt.Keyring{})
	})
}
