package bolt_test

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store/bolt"
)

// compactionSteps is a log handler that calls itself at each step of a compaction: "begun", "copied",
// "synced" and "renamed". Writers wait in the last two.
type compactionSteps func(step string)

func (c compactionSteps) Enabled(context.Context, slog.Level) bool { return true }
func (c compactionSteps) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c compactionSteps) WithGroup(string) slog.Handler            { return c }

func (c compactionSteps) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "step" {
			c(a.Value.String())
		}
		return true
	})
	return nil
}

// atSteps returns options under which at is called at each step of a compaction.
func atSteps(opts bolt.Options, at func(step string)) bolt.Options {
	opts.Logger = slog.New(compactionSteps(at))
	return opts
}

// brokenCompaction is a compaction that fails at a step. It keeps a copy of the files at that moment,
// as a kill would leave them.
type brokenCompaction struct {
	path   string // of the database
	step   string
	killed string // path of the copy

	cancel context.CancelFunc
}

func breakCompaction(t *testing.T, step string) *brokenCompaction {
	return &brokenCompaction{step: step, killed: filepath.Join(t.TempDir(), "cache.db")}
}

// at is called at each step.
func (b *brokenCompaction) at(t *testing.T, step string) {
	if step != b.step {
		return
	}
	for _, suffix := range []string{"", ".compact"} {
		raw, err := os.ReadFile(b.path + suffix)
		if suffix != "" && step == "renamed" {
			require.ErrorIs(t, err, fs.ErrNotExist)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(b.killed+suffix, raw, 0o600))
	}
	switch step {
	case "begun", "copied":
		b.cancel()
	case "synced": // the name is taken by what a file can't replace
		require.NoError(t, os.Rename(b.path, b.path+".away"))
		require.NoError(t, os.Mkdir(b.path, 0o700))
	case "renamed": // a file that is not found can't be synced
		require.NoError(t, os.Rename(b.path, b.path+".away"))
	}
}

// run compacts, requires that this fails, and removes the obstacle.
func (b *brokenCompaction) run(t *testing.T, db *bolt.DB) (before, after int64) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.cancel = cancel
	before, after, err := db.Compact(ctx)
	switch b.step {
	case "begun", "copied":
		require.ErrorIs(t, err, context.Canceled)
		return before, after
	case "synced":
		require.ErrorIs(t, err, fs.ErrExist)
		require.NoError(t, os.Remove(b.path))
	case "renamed":
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	require.NoError(t, os.Rename(b.path+".away", b.path))
	return before, after
}

// needed returns how many bytes are missing in which directory, as an error of a copy without room
// reports them.
func needed(t *testing.T, err error) (bytes int64, dir string) {
	require.ErrorIs(t, err, bolt.ErrNoRoom)
	m := regexp.MustCompile(`: (\d+) bytes are needed in (.*) and \d+ are free$`).FindStringSubmatch(err.Error())
	require.Len(t, m, 3, err)
	bytes, err = strconv.ParseInt(m[1], 10, 64)
	require.NoError(t, err)
	return bytes, m[2]
}

// overflow makes a file appear so large that no copy of it fits on its disk, until restore is called.
// Almost all of it is a hole, of so many bytes.
func overflow(t *testing.T, path string) (hole int64, restore func()) {
	info, err := os.Stat(path)
	require.NoError(t, err)
	free, err := bolt.FreeDisk(filepath.Dir(path))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()+free))
	return free, func() { require.NoError(t, os.Truncate(path, info.Size())) }
}
