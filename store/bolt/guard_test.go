package bolt_test

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// readsOfView are all reads of a view.
var readsOfView = []struct {
	name string
	read func(v store.View) error
}{
	{"Get", func(v store.View) error { _, err := v.Get("ns/o-1"); return err }},
	{"Raw", func(v store.View) error { _, err := v.Raw("ns/o-1", nil); return err }},
	{"Header", func(v store.View) error { _, err := v.Header("ns/o-1"); return err }},
	{"Horizon", func(v store.View) error { _, err := v.Horizon(); return err }},
	{"Indexes", func(v store.View) error { v.Indexes(); return nil }},
	{"Building", func(v store.View) error { v.Building(); return nil }},
	{"Objects", func(v store.View) (first error) {
		for _, err := range v.Objects("", "") {
			first = err
			break
		}
		return first
	}},
	{"IndexKeys", func(v store.View) (first error) {
		for _, err := range v.IndexKeys(lifeIndexes()[0].Name, "x", "") {
			first = err
		}
		return first
	}},
	{"Changes", func(v store.View) (first error) {
		for _, err := range v.Changes("100") {
			first = err
			break
		}
		return first
	}},
}

// If the disk does not give back a page, no read of a view ends the process: each returns, and the
// fault is counted.
func TestView_UnreadablePage_DoesNotEndTheProcess(t *testing.T) {
	for _, c := range readsOfView {
		t.Run(c.name, func(t *testing.T) {
			path := foldedSample(t)
			db := openDB(t, path, bolt.Options{ReadOnly: true})
			defer db.Close()
			v := view(t, db, "pods")
			defer v.Close()
			require.NoError(t, os.Truncate(path, 2*4096)) // reading the mapping behind it is a fault
			err := c.read(v)
			stats := db.Stats()
			// An emulator doesn't report the address of a fault, by which the store knows one.
			if os.Getenv("SNAPCACHE_TEST_EXEC") == "" {
				require.NotZero(t, stats.ReadFaults)
				require.ErrorAs(t, stats.ReadError, new(*store.CorruptionError))
			}
			if err != nil && c.name != "IndexKeys" { // it has no index then
				require.ErrorAs(t, err, new(*store.CorruptionError))
			}
		})
	}
}

// A read restores the goroutine's own setting for faults.
func TestView_Read_RestoresPanicOnFault(t *testing.T) {
	for _, c := range readsOfView {
		for _, set := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				db := openDB(t, foldedSample(t), bolt.Options{})
				defer db.Close()
				was := debug.SetPanicOnFault(set)
				v, err := db.View("pods")
				if err == nil {
					_ = c.read(v) // any result will do
					v.Close()
				}
				require.Equal(t, set, debug.SetPanicOnFault(was))
				require.NoError(t, err)
			})
		}
	}
}
