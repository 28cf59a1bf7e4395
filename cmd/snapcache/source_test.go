package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// A command without an agent opens the file once, whatever the number of collections, and holds it
// no longer than it reads: an agent can start while the answer is printed.
func TestLookup_File_IsOpenedOnceAndNotHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	for _, id := range []string{"configmaps", "secrets", "services"} {
		c, err := db.Open(storetest.Info(id))
		require.NoError(t, err)
		r, err := c.Replace()
		require.NoError(t, err)
		require.NoError(t, r.Apply([]store.Change{storetest.Put(storetest.Object("ns", "a", "u", "1", nil, ""))}))
		require.NoError(t, r.Commit(storetest.Checkpoint(1)))
	}
	require.NoError(t, db.Close())

	opened, printed := 0, 0
	look := &lookup{db: path, onlyFile: true, keys: func() (bolt.Keyring, error) {
		opened++
		return bolt.Keyring{}, nil
	}}
	defer look.close()
	src, status, err := look.open(t.Context())
	require.NoError(t, err)
	require.NoError(t, src.Objects(t.Context(), ids(status.Collections), localapi.ObjectQuery{}, func([]byte) error {
		printed++
		agents, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			return err
		}
		return agents.Close()
	}))
	require.Equal(t, 3, printed)
	require.Equal(t, 1, opened)
}
