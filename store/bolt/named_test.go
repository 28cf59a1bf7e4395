package bolt_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// If the directory is not synced after a compaction's rename, nothing counts as durable: a power
// cut may bring the old file back.
func TestCompact_DirectoryNotSynced_IsNotDurable(t *testing.T) {
	var path string
	opts := atSteps(bolt.Options{}, func(step string) {
		if step == "renamed" {
			require.NoError(t, os.Rename(path, path+".away")) // a file that is not found can't be synced
		}
	})
	db, c, model, at := bloated(t, opts)
	path = at
	_, _, err := db.Compact(context.Background())
	require.ErrorContains(t, err, "no such file")
	require.Error(t, db.Stats().FlushError)
	change(t, c, model, 7001, storetest.Put(storetest.Object("ns", "after", "u", "7001", nil, "x")))
	require.ErrorContains(t, db.Flush(), "no such file")
	require.NoError(t, model.Diff(viewOf(t, db)), "readers see it")

	require.NoError(t, os.Rename(path+".away", path))
	require.NoError(t, db.Flush())
	require.NoError(t, db.Stats().FlushError)
	require.NoError(t, model.Diff(viewOf(t, db)))
}
