package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// TestLyingSeed starts agents whose restore.seed is a crafted snapshot. Each refuses it, in little memory and
// with little on the disk, names the file, and lists.
func TestLyingSeed(t *testing.T) {
	t.Parallel()
	cp := quietControlPlane(t)
	for _, c := range []struct {
		name  string
		size  int64 // of its database, of zeros
		text  string
		limit int64 // of bytes on disk
	}{
		{"of gigabytes", 512 << 20, "its manifest claims a database of 536870912 bytes", 4 << 20},
		{"over store.maxSize", 48 << 20, "its database has 50331648 bytes, store.maxSize is 33554432", 4 << 20},
		{"that is no database", 24 << 20, "not a snapcache database", 32 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			given := filepath.Join(t.TempDir(), "given.snap")
			f, err := os.Create(given)
			require.NoError(t, err)
			snapshotOf(t, f, c.size)
			require.NoError(t, f.Close())
			x := newSite(t, settings{
				kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: twoResources, more: "restore: {seed: " + given + "}",
			})
			b := harness.ReadFile(t, x.config)
			b = regexp.MustCompile("(?m)^store:$").ReplaceAll(b, []byte("store:\n  maxSize: 32Mi"))
			require.NoError(t, os.WriteFile(x.config, b, 0o600))
			most, stop := mostBytes(filepath.Dir(x.db))
			a := x.start()
			for id, c := range a.awaitCaughtUp(anywhere(twoIDs...)) {
				require.EqualValues(t, 1, c.Lists, id)
			}
			close(stop)
			peak, written := a.peak(), <-most
			a.stop()
			t.Logf("peak %.0f MB, %d KiB on disk at most", peak, written>>10)
			require.Positive(t, peak)
			require.Less(t, peak, float64(liarMB), "MB at the peak")
			require.LessOrEqual(t, written, c.limit, "bytes on disk")
			log := harness.ReadFile(t, x.log)
			line := regexp.MustCompile(`.*a snapshot could not be used.*`).Find(log)
			require.Contains(t, string(line), given)
			require.Contains(t, string(line), c.text)
			left, err := filepath.Glob(x.db + ".*")
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}
