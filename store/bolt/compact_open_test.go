package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// bloated opens a database whose file is mostly free, and returns its collection and the model of
// its views.
func bloated(t *testing.T, opts bolt.Options) (*bolt.DB, store.Collection, *storetest.Model, string) {
	return bloatedOpened(t, bolt.Open, opts)
}

// bloatedByHand is bloated of a database in which nothing runs in the background.
func bloatedByHand(t *testing.T, opts bolt.Options) (*bolt.DB, store.Collection, *storetest.Model, string) {
	return bloatedOpened(t, bolt.OpenByHand, opts)
}

func bloatedOpened(t *testing.T, open func(string, bolt.Options) (*bolt.DB, error), opts bolt.Options) (*bolt.DB, store.Collection, *storetest.Model, string) {
	path, model := bloatedFile(t)
	opts.FlushInterval = time.Hour
	db, err := open(path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	c := openCollection(t, db, storetest.Info("pods"), lifeIndexes()...)
	return db, c, model, path
}

func inode(t *testing.T, path string) uint64 {
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

// change applies a batch to collection and model.
func change(t *testing.T, c store.Collection, m *storetest.Model, rv int, changes ...store.Change) {
	b := store.Batch{Changes: changes, Checkpoint: storetest.Checkpoint(rv)}
	require.NoError(t, c.Apply(b))
	m.Apply(b)
}

// During a compaction of an open database, older views go on, applied changes are in the new file,
// and no other process can open the database at any moment.
func TestCompactOpen(t *testing.T) {
	var db *bolt.DB
	var c store.Collection
	var model *storetest.Model
	var path string
	rv := 7000
	clock := clocktesting.NewFakeClock(time.Now())
	opts := atSteps(bolt.Options{ViewLimit: time.Hour, HistoryRetention: 1000 * 24 * time.Hour, Clock: clock}, func(step string) {
		_, err := bolt.Open(path, bolt.Options{})
		require.ErrorIs(t, err, store.ErrLocked, step)
		if step == "begun" || step == "copied" { // writers wait in the other steps
			rv++
			change(t, c, model, rv, storetest.Put(storetest.Object("ns", "during-"+step, "u", fmt.Sprint(rv), nil, "x")))
			clock.Step(16 * time.Minute) // a fold is due, and has to wait
			require.NoError(t, db.Flush())
			rv++
			change(t, c, model, rv, storetest.Put(storetest.Object("ns", "later-"+step, "u", fmt.Sprint(rv), nil, "x")))
		}
	})
	db, c, model, path = bloated(t, opts)
	before, old := model.Clone(), viewOf(t, db)
	was, written := inode(t, path), db.Stats().PagesWritten

	size, now, err := db.Compact(context.Background())
	require.NoError(t, err)
	require.Less(t, now, size/2)
	stats := db.Stats()
	require.Equal(t, now, stats.FileBytes)
	require.EqualValues(t, 1, stats.Compactions)
	require.Equal(t, size-now, stats.CompactedBytes)
	require.GreaterOrEqual(t, stats.PagesWritten, written, "totals do not go back")
	require.NotEqual(t, was, inode(t, path))
	require.NoFileExists(t, path+".compact")
	before.Equal(t, old)
	sameAs(t, db, model)

	// Changes that were flushed before are durable in the new file, and so are later ones.
	change(t, c, model, 8000, storetest.Delete("ns/o-0000"))
	require.NoError(t, db.Flush())
	crashed := asKilled(t, path)
	require.NoError(t, db.Fold())
	sameAs(t, db, model)
	before.Equal(t, old)
	report := checkReport(t, crashed, bolt.Keyring{})
	require.Empty(t, report.Problems)
	again := openDB(t, crashed, bolt.Options{})
	defer again.Close()
	sameAs(t, again, model)

	// Close waits for the view of the old file as for any other.
	_, err = bolt.Open(path, bolt.Options{})
	require.ErrorIs(t, err, store.ErrLocked)
	done := make(chan error)
	go func() { done <- db.Close() }()
	before.Equal(t, old)
	select {
	case <-done:
		t.Fatal("closed with a view open")
	default:
	}
	old.Close()
	require.NoError(t, <-done)
	_, _, err = db.Compact(context.Background())
	require.ErrorIs(t, err, store.ErrClosed)
}

// A bucket that does not fit in one transaction is copied in several.
func TestCompactLarge(t *testing.T) {
	db, path := newDB(t, bolt.Options{FlushInterval: time.Hour})
	model := storetest.NewModel(storetest.Info("pods"), appIndex)
	c := openCollection(t, db, storetest.Info("pods"), appIndex)
	var puts []store.Change
	for i := range 400 {
		o := storetest.Object("ns", fmt.Sprintf("o-%04d", i), "u", "5", map[string]string{"app": "till"}, incompressibles(i, 12))
		puts = append(puts, storetest.Put(o))
	}
	replaceAll(t, c, puts, 5000)
	model.Replace(storetest.Info("pods"), puts, storetest.Checkpoint(5000))
	require.NoError(t, db.CompactAnyway(context.Background()))
	require.Greater(t, db.Stats().FileBytes, int64(5<<20))
	sameAs(t, db, model)
	require.NoError(t, db.Close())
	was := content(t, path)
	_, _, err := bolt.Compact(path, bolt.Options{})
	require.NoError(t, err)
	require.Equal(t, was, content(t, path))
}

// incompressibles returns n times as much as incompressible.
func incompressibles(seed, n int) string {
	var s strings.Builder
	for i := range n {
		s.WriteString(incompressible(seed*n + i))
	}
	return s.String()
}

// A build waits for a compaction, which would end with ErrBusy otherwise.
func TestBuildWaitsForCompaction(t *testing.T) {
	var db *bolt.DB
	opts := atSteps(bolt.Options{}, func(step string) {
		if step == "begun" || step == "copied" {
			more, err := db.BuildStep(10)
			require.NoError(t, err)
			require.True(t, more)
		}
	})
	db, _ = newDBByHand(t, opts)
	_, model := filled(t, db, 5)
	reopen(t, db, model, appIndex)
	require.NoError(t, db.CompactAnyway(context.Background()))
	sameAs(t, db, model, "app")
	steps(t, db, 10)
	model.Building = nil
	sameAs(t, db, model)
}

// A crash at any step leaves a file under the name that has all that was flushed, and the next
// opening removes the other file. After an error the old file stays in use.
func TestCompactOpenCrash(t *testing.T) {
	for _, step := range []string{"begun", "copied", "synced", "renamed"} {
		t.Run(step, func(t *testing.T) {
			b := breakCompaction(t, step)
			opts := atSteps(bolt.Options{HistoryRetention: storetest.HistoryRetention}, func(step string) { b.at(t, step) })
			db, c, model, path := bloatedByHand(t, opts)
			b.path = path
			flushed := model.Clone()
			change(t, c, model, 7000, storetest.Delete("ns/o-0000")) // not flushed
			was := inode(t, path)
			before, after := b.run(t, db)
			require.NoFileExists(t, path+".compact")
			if step == "renamed" {
				require.Less(t, after, before)
				require.NotEqual(t, was, inode(t, path))
			} else {
				require.Equal(t, before, after)
				require.Equal(t, was, inode(t, path))
				require.Zero(t, db.Stats().Compactions)
			}
			sameAs(t, db, model)
			change(t, c, model, 7001, storetest.Put(storetest.Object("ns", "after", "u", "7001", nil, "x")))
			require.NoError(t, db.Fold())
			require.NoError(t, db.Close())
			reopened := openDB(t, path, bolt.Options{HistoryRetention: storetest.HistoryRetention})
			sameAs(t, reopened, model)
			require.NoError(t, reopened.Close())

			left := openDB(t, b.killed, bolt.Options{HistoryRetention: storetest.HistoryRetention})
			sameAs(t, left, flushed)
			require.NoError(t, left.Close())
			require.NoFileExists(t, b.killed+".compact")
		})
	}
}

// An obstacle makes a compaction fail, and nothing else.
func TestCompactOpenRefuses(t *testing.T) {
	at := func(string) {}
	db, c, model, path := bloatedByHand(t, atSteps(bolt.Options{}, func(step string) { at(step) }))
	rv := 7000
	refused := func(ctx context.Context, why error) {
		t.Helper()
		was := inode(t, path)
		_, _, err := db.Compact(ctx)
		require.ErrorIs(t, err, why)
		require.Equal(t, was, inode(t, path))
		require.NoFileExists(t, path+".compact")
		sameAs(t, db, model)
		rv++
		change(t, c, model, rv, storetest.Put(storetest.Object("ns", "after", "u", fmt.Sprint(rv), nil, "x")))
		require.NoError(t, db.Flush())
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	refused(cancelled, context.Canceled)

	at = func(step string) {
		if step == "copied" {
			_, _, err := db.Compact(context.Background())
			require.ErrorIs(t, err, bolt.ErrBusy, "a second compaction")
			require.NoError(t, db.Fold())
		}
	}
	rv++
	change(t, c, model, rv, storetest.Delete("ns/o-0000"))
	refused(context.Background(), bolt.ErrBusy)

	// Another process may have set the file aside and created another under the name.
	at = func(step string) {
		if step == "copied" {
			require.NoError(t, os.Rename(path, path+".aside"))
			require.NoError(t, os.WriteFile(path, []byte("theirs"), 0o600))
		}
	}
	_, _, err := db.Compact(context.Background())
	require.ErrorContains(t, err, "lost its name")
	raw := readFile(t, path)
	require.Equal(t, "theirs", string(raw))
	require.NoError(t, os.Rename(path+".aside", path))
	sameAs(t, db, model)
}

func TestCompactOpenWithoutRoom(t *testing.T) {
	db, _, model, path := bloated(t, bolt.Options{})
	was := inode(t, path)
	hole, restore := overflow(t, path)
	_, _, err := db.Compact(context.Background())
	restore()
	bytes, dir := needed(t, err)
	require.Greater(t, bytes-hole, int64(16<<20))
	require.Equal(t, filepath.Dir(path), dir)
	require.Equal(t, was, inode(t, path))
	require.NoFileExists(t, path+".compact")
	sameAs(t, db, model)
	_, _, err = db.Compact(context.Background())
	require.NoError(t, err)
	sameAs(t, db, model)
}

// Readers and a writer go on beside one compaction after the other.
func TestCompactBesideReadersAndWriter(t *testing.T) {
	db, c, model, path := bloated(t, bolt.Options{HistoryRetention: storetest.HistoryRetention})
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				v, err := db.View("pods")
				if err != nil {
					t.Errorf("view: %v", err)
					return
				}
				if err := consistent(v); err != nil {
					t.Errorf("view at RV %s: %v", v.State().RV, err)
				}
				v.Close()
			}
		})
	}
	all.Go(func() {
		defer close(stop)
		for range 15 {
			if err := db.CompactAnyway(context.Background()); err != nil {
				t.Errorf("compact: %v", err)
			}
		}
	})
	rv := 7000
	for running := true; running; {
		select {
		case <-stop:
			running = false
		default:
		}
		rv++
		change(t, c, model, rv, storetest.Put(storetest.Object("ns", fmt.Sprint("w-", rv%50), "u", fmt.Sprint(rv), map[string]string{"app": fmt.Sprint("a-", rv%3)}, "x")))
		if rv%10 == 0 {
			require.NoError(t, db.Flush())
		}
	}
	all.Wait()
	sameAs(t, db, model)
	require.NoError(t, db.Close())
	report := checkReport(t, path, bolt.Keyring{})
	require.Empty(t, report.Problems)
	db = openDB(t, path, bolt.Options{HistoryRetention: storetest.HistoryRetention})
	defer db.Close()
	sameAs(t, db, model)
}

// consistent compares the totals of a view with its objects, and an index with the objects.
func consistent(v store.View) error {
	var objects, labelled, entries int64
	for o, err := range v.Objects("", "") {
		if err != nil {
			return err
		}
		objects++
		if _, ok := o.Labels()["app"]; ok {
			labelled++
		}
	}
	for _, err := range v.IndexEntries("app", "", store.IndexEntry{}) {
		if err != nil {
			return err
		}
		entries++
	}
	if objects != v.State().Count || entries != labelled {
		return fmt.Errorf("%d objects, the state has %d; %d of them labelled, the index has %d", objects, v.State().Count, labelled, entries)
	}
	return nil
}

// A database compacts itself after a fold if that pays, not more than once a day, and an hour later
// if it failed.
func TestAutomaticCompaction(t *testing.T) {
	path, model := bloatedFile(t)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		db := openDB(t, path, bolt.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer db.Close()
		c := openCollection(t, db, storetest.Info("pods"), lifeIndexes()...)
		rv := 7000
		fold := func(changes ...store.Change) int64 {
			rv++
			change(t, c, model, rv, changes...)
			require.NoError(t, db.Fold())
			db.WaitForBackground()
			sameAs(t, db, model)
			return db.Stats().Compactions
		}
		// bloat makes the file large, and most of it free.
		bloat := func(part int) {
			var puts, deletes []store.Change
			for i := range 2000 {
				o := storetest.Object("bloat", fmt.Sprint(i), "u", "1", nil, incompressibles(i, 8))
				puts, deletes = append(puts, storetest.Put(o)), append(deletes, storetest.Delete(o.Key()))
			}
			fold(puts...)
			fold(deletes[:part]...)
		}
		obstacle := filepath.Join(path+".compact", "in the way")
		require.NoError(t, os.MkdirAll(obstacle, 0o700))
		require.Zero(t, fold())
		require.Contains(t, log.String(), "could not be compacted")
		require.NoError(t, os.RemoveAll(path+".compact"))
		require.Zero(t, fold(), "not tried again at once")
		time.Sleep(2 * time.Hour)
		require.EqualValues(t, 1, fold())
		require.Contains(t, log.String(), "database compacted")
		size := db.Stats().FileBytes
		bloat(2000)
		require.EqualValues(t, 1, fold(), "once a day")
		require.Greater(t, db.Stats().FileBytes, size)
		time.Sleep(25 * time.Hour)
		require.EqualValues(t, 2, fold())
		require.LessOrEqual(t, db.Stats().FileBytes, 2*size)
		time.Sleep(25 * time.Hour)
		require.EqualValues(t, 2, fold(), "nothing to gain")
		bloat(400)
		require.EqualValues(t, 2, fold(), "less than two thirds")
		before, after, err := db.Compact(t.Context())
		require.NoError(t, err)
		require.Greater(t, before-after, int64(16<<20), "enough, but not beside what is in use")
	})
}

// Close ends a compaction, and loses nothing that was flushed.
func TestCloseEndsCompaction(t *testing.T) {
	var db *bolt.DB
	closed := make(chan error, 1)
	opts := atSteps(bolt.Options{}, func(step string) {
		if step == "begun" {
			go func() { closed <- db.Close() }()
			for !errors.Is(closing(db), store.ErrClosed) {
			}
		}
	})
	var model *storetest.Model
	var path string
	db, _, model, path = bloated(t, opts)
	_, _, err := db.Compact(context.Background())
	require.ErrorIs(t, err, store.ErrClosed)
	require.NoError(t, <-closed)
	require.NoFileExists(t, path+".compact")
	db = openDB(t, path, bolt.Options{})
	defer db.Close()
	sameAs(t, db, model)
}

// closing reports whether Close was called.
func closing(db *bolt.DB) error {
	_, _, err := db.Compact(context.Background())
	return err
}
