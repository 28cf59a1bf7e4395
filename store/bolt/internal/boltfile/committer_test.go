package boltfile

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// testCommitter is a committer on a new file, whose content is one value.
type testCommitter struct {
	*Committer
	t     *testing.T
	clock *clocktesting.FakeClock
	after []error // what AfterUncertain was called with
}

func newTestCommitter(t *testing.T, maxBytes int64) *testCommitter {
	path := filepath.Join(t.TempDir(), "cache.db")
	opts := Options{MaxBytes: maxBytes}
	require.NoError(t, Create(path, "test", nil, opts))
	f, err := Open(path, opts)
	require.NoError(t, err)
	x := &testCommitter{t: t, clock: clocktesting.NewFakeClock(time.Now())}
	x.Committer = &Committer{
		Path: path, Handle: NewHandle(f, slog.New(slog.DiscardHandler)), Clock: x.clock, ViewLimit: time.Minute,
		BeforeCommit: func() {}, AfterUncertain: func(err error) { x.after = append(x.after, err) },
	}
	t.Cleanup(func() { _ = x.Handle.Close() })
	require.NoError(t, x.Commit(put("old")))
	require.NoError(t, x.ResyncMeta())
	return x
}

var testKey = []byte("test")

func put(value string) func(*Tx) error {
	return func(tx *Tx) error { return tx.Bucket(format.BucketMeta).Put(testKey, []byte(value)) }
}

// uncertainly is put in a transaction whose commit fails after its meta page was written, as if the
// last fsync had failed.
func uncertainly(value string) func(*Tx) error {
	return func(tx *Tx) error {
		tx.raw.OnCommit(func() { panic("the last fsync failed") })
		return put(value)(tx)
	}
}

func read(t *testing.T, view func(func(*Tx) error) error) (value string) {
	require.NoError(t, view(func(tx *Tx) error { value = string(tx.Bucket(format.BucketMeta).Get(testKey)); return nil }))
	return value
}

// copied returns the path of a copy of the file.
func (x *testCommitter) copied() string {
	raw, err := os.ReadFile(x.Path)
	require.NoError(x.t, err)
	path := filepath.Join(x.t.TempDir(), "copy.db")
	require.NoError(x.t, os.WriteFile(path, raw, 0o600))
	return path
}

// onDisk returns the value that the next start finds.
func (x *testCommitter) onDisk() string {
	f, err := Open(x.copied(), Options{ReadOnly: true})
	require.NoError(x.t, err)
	defer f.Close()
	return read(x.t, f.View)
}

// metaPages reads the two meta pages of the file.
func (x *testCommitter) metaPages() []byte {
	raw, err := os.ReadFile(x.Path)
	require.NoError(x.t, err)
	return raw[:2*PageSize]
}

// breakWrites makes ResyncMeta fail until repair is called.
func (x *testCommitter) breakWrites() (repair func()) {
	readOnly, err := os.Open(x.Path)
	require.NoError(x.t, err)
	x.t.Cleanup(func() { _ = readOnly.Close() })
	f := x.Handle.current()
	works := f.raw
	f.raw = readOnly
	return func() { f.raw = works }
}

// A commit whose last fsync failed is read at once, but not reported as durable, and nothing is
// written on top of it until its meta page is written and synced again: even if the kernel has
// dropped the page meanwhile.
func TestCommitter_LastSyncFails_IsUncertainUntilResync(t *testing.T) {
	x := newTestCommitter(t, 0)
	old := x.metaPages()
	repair := x.breakWrites()
	require.NoError(t, x.Commit(uncertainly("new")), "it is visible")
	written := x.metaPages()
	require.Equal(t, "new", read(t, x.Handle.View))
	require.Equal(t, 1, x.UncertainCommits())
	require.Len(t, x.after, 1)
	require.ErrorIs(t, x.after[0], syscall.EBADF)
	require.ErrorIs(t, x.ResyncMeta(), syscall.EBADF, "it is not durable")
	require.ErrorIs(t, x.Commit(func(*Tx) error { t.Error("written on top"); return nil }), syscall.EBADF)

	f, err := os.OpenFile(x.Path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(old, 0)
	require.NoError(t, errors.Join(err, f.Close()))
	require.Equal(t, "old", read(t, x.Handle.View))
	require.Equal(t, "old", x.onDisk())
	require.Error(t, x.ResyncMeta())

	repair()
	require.NoError(t, x.ResyncMeta())
	require.Equal(t, "new", read(t, x.Handle.View))
	require.Equal(t, "new", x.onDisk())
	require.Equal(t, written, x.metaPages(), "and the page of the commit before it is untouched")
	for _, value := range []string{"next", "the one after"} { // the second uses the same page again
		require.NoError(t, x.Commit(put(value)))
		require.NoError(t, x.ResyncMeta())
		require.Equal(t, value, x.onDisk())
	}
	require.Equal(t, 1, x.UncertainCommits())
	require.Len(t, x.after, 1)
}

// If the first attempt to repeat the fsync succeeds, the commit is durable.
func TestCommitter_LastSyncFailsOnce_IsDurable(t *testing.T) {
	x := newTestCommitter(t, 0)
	require.NoError(t, x.Commit(uncertainly("new")))
	require.Equal(t, 1, x.UncertainCommits())
	require.Equal(t, []error{nil}, x.after)
	require.NoError(t, x.ResyncMeta())
	require.Equal(t, "new", x.onDisk())
}

// Views from before an uncertain commit hold the next one up: until they end, or for their time
// limit.
func TestCommitter_UncertainCommit_WaitsForViews(t *testing.T) {
	for name, end := range map[string]func(x *testCommitter, view *Tx){
		"until they end":       func(_ *testCommitter, view *Tx) { view.Rollback() },
		"for their time limit": func(x *testCommitter, _ *Tx) { x.clock.Step(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newTestCommitter(t, 0)
			view, err := x.Handle.Begin()
			require.NoError(t, err)
			defer view.Rollback()
			require.NoError(t, x.Commit(uncertainly("new")))
			require.Len(t, x.after, 1)
			require.ErrorIs(t, x.after[0], errViewed)
			require.ErrorContains(t, x.after[0], "the last fsync failed")
			x.clock.Step(x.ViewLimit - time.Second)
			require.ErrorIs(t, x.Commit(put("next")), errViewed)
			require.Equal(t, "old", string(view.Bucket(format.BucketMeta).Get(testKey)))
			require.Equal(t, "new", read(t, x.Handle.View))
			end(x, view)
			require.NoError(t, x.Commit(put("next")))
			require.Equal(t, "next", x.onDisk())
		})
	}
}

// A commit that failed before its meta page was written is rolled back, and is not uncertain.
func TestCommitter_DataNotWritten_IsRolledBack(t *testing.T) {
	x := newTestCommitter(t, AllocBytes)
	require.Error(t, x.Commit(put(string(make([]byte, 2*AllocBytes)))), "more than the quota")
	require.Equal(t, "old", read(t, x.Handle.View))
	require.Zero(t, x.UncertainCommits())
	require.Empty(t, x.after)
	require.NoError(t, x.ResyncMeta())
	require.NoError(t, x.Commit(put("next")))
	require.Equal(t, "next", x.onDisk())
}

// Close does not report a success, nor mark the file as shut down cleanly, while a commit is
// uncertain.
func TestCommitter_CloseWhileUncertain_ReturnsError(t *testing.T) {
	x := newTestCommitter(t, 0)
	repair := x.breakWrites()
	require.NoError(t, x.Commit(uncertainly("new")))
	require.ErrorIs(t, x.Close(func() error { return nil }), syscall.EBADF)
	require.Equal(t, Crashed, LastShutdown(x.copied()))
	repair()
	require.NoError(t, x.Close(func() error { return nil }))
	require.Equal(t, Clean, LastShutdown(x.copied()))
}
