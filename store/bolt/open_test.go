package bolt_test

import (
	"os"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// tester is a test, a benchmark or a property.
type tester interface {
	require.TestingT
	Helper()
}

// openDB opens a database, which the test closes.
func openDB(t tester, path string, opts bolt.Options) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(path, opts)
	require.NoError(t, err)
	return db
}

// openRaw opens the file of a database, which the test closes.
func openRaw(t tester, path string, opts *bbolt.Options) *bbolt.DB {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, opts)
	require.NoError(t, err)
	return db
}

func openCollection(t tester, db *bolt.DB, info store.Info, indexes ...store.Index) store.Collection {
	t.Helper()
	c, err := db.Open(info, indexes...)
	require.NoError(t, err)
	return c
}

// view returns a view of a collection, which the test closes.
func view(t tester, db *bolt.DB, id string) store.View {
	t.Helper()
	v, err := db.View(id)
	require.NoError(t, err)
	return v
}

// checkReport returns the report of a check.
func checkReport(t tester, path string, keys bolt.Keyring) *bolt.CheckReport {
	t.Helper()
	report, err := bolt.Check(path, keys, nil)
	require.NoError(t, err)
	return report
}

func readFile(t tester, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}
