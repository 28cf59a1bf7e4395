package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// life is a database that is written, flushed, folded, replaced and killed, with the models of its
// states.
type life struct {
	keys  bolt.Keyring
	dir   string
	files int
	path  string
	db    *bolt.DB
	coll  store.Collection
	rv    int

	indexes []store.Index // those that the collection was opened with

	// since has the states from the newest one that is known to be durable, which is the first. A
	// crash leaves one of them.
	since []*storetest.Model

	views  []store.View
	models []*storetest.Model // the models of the views

	slice int // bytes of the slices of a fold
}

// foldSlices folds in slices of about so many bytes. The fold ends half done after count of them; 0
// stands for all.
func foldSlices(t require.TestingT, db *bolt.DB, bytes, count int) {
	done := 1
	require.NoError(t, db.FoldSlices(bytes, func() bool {
		done++
		return count == 0 || done <= count
	}))
}

func lifeIndexes() []store.Index {
	return []store.Index{store.LabelIndex("app", "app"), store.FieldIndex("payload", "data.payload")}
}

// drawIndexes draws some of the indexes, each with one of its two definitions.
func drawIndexes(t *rapid.T) (indexes []store.Index) {
	for _, of := range [][]store.Index{
		{store.LabelIndex("app", "app"), store.FieldIndex("app", "metadata.labels.app")},
		{store.FieldIndex("payload", "data.payload"), store.FieldIndex("payload", "metadata.resourceVersion")},
	} {
		if i := rapid.IntRange(0, len(of)).Draw(t, "index"); i > 0 {
			indexes = append(indexes, of[i-1])
		}
	}
	return indexes
}

func (l *life) now() *storetest.Model { return l.since[len(l.since)-1] }

func (l *life) open(t *rapid.T) {
	db, err := bolt.OpenByHand(l.path, bolt.Options{FlushInterval: time.Hour, ReplaceBudget: 600, Keys: l.keys, HistoryRetention: storetest.HistoryRetention})
	require.NoError(t, err)
	l.db = db
	l.reindex(t)
}

// reindex opens the collection, in half of the cases with other indexes, which makes all applied
// changes durable.
func (l *life) reindex(t *rapid.T) {
	before := l.indexes
	if rapid.Bool().Draw(t, "reindex") {
		l.indexes = drawIndexes(t)
	}
	l.db.TakeFromOwner("pods")
	var err error
	l.coll, err = l.db.Open(storetest.Info("pods"), l.indexes...)
	require.NoError(t, err)
	next := l.now().Clone()
	next.Open(storetest.Info("pods"), l.indexes...)
	if slices.EqualFunc(before, l.indexes, func(a, b store.Index) bool { return a.Name == b.Name && a.Spec == b.Spec }) {
		l.since[len(l.since)-1] = next
		return
	}
	l.since = []*storetest.Model{next}
}

// compact compacts the file, which does not change the durable state.
func (l *life) compact(t *rapid.T) {
	require.NoError(t, l.db.CompactAnyway(context.Background()))
}

// build takes some steps of the builds in progress.
func (l *life) build(t *rapid.T) {
	for range rapid.IntRange(0, 6).Draw(t, "steps") {
		more, err := l.db.BuildStep(3)
		require.NoError(t, err)
		if !more {
			for _, m := range l.since {
				m.Building = nil // an index that is complete stays complete over a crash
			}
		}
	}
}

func (l *life) changes(t *rapid.T) []store.Change {
	var changes []store.Change
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}), 0, 10, rapid.ID).Draw(t, "names") {
		ns := rapid.SampledFrom([]string{"x", "x-y"}).Draw(t, "ns")
		if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
			gone := storetest.Delete(object.Key(ns, name))
			if l.rv++; rapid.Bool().Draw(t, "deleted at") {
				gone.RV = fmt.Sprint(l.rv)
			}
			changes = append(changes, gone)
			continue
		}
		l.rv++
		labels := map[string]string{"app": rapid.SampledFrom([]string{"", "till", "camera"}).Draw(t, "app")}
		payload := fmt.Sprintf("%0*d", rapid.SampledFrom([]int{1, 40, 400}).Draw(t, "size"), l.rv%3)
		changes = append(changes, storetest.Put(storetest.Object(ns, name, "u", fmt.Sprint(l.rv), labels, payload)))
	}
	return changes
}

// checkpoint returns a checkpoint past all changes so far. Most of the lists that end at it
// continue the history.
func (l *life) checkpoint(t *rapid.T) store.Checkpoint {
	l.rv += 12
	cp := storetest.Checkpoint(l.rv)
	cp.Cluster = "one"
	cp.ListReason = rapid.SampledFrom([]store.Reason{store.ReasonExpired, store.ReasonExpired, store.ReasonExpired, store.ReasonRVAhead}).Draw(t, "reason")
	return cp
}

func (l *life) closeViews() {
	for _, v := range l.views {
		v.Close()
	}
	l.views, l.models = nil, nil
}

// crash goes on with a copy of the file as it is on disk, as after a kill. It requires that the
// copy has one of the states since the newest one that is known to be durable.
func (l *life) crash(t *rapid.T) {
	raw := readFile(t, l.path)
	l.closeViews()
	require.NoError(t, l.db.Close())
	l.files++
	l.path = filepath.Join(l.dir, fmt.Sprintf("%d.db", l.files))
	require.NoError(t, os.WriteFile(l.path, raw, 0o600))

	report := checkReport(t, l.path, l.keys)
	require.Empty(t, report.Problems)

	// The state as a reader without an agent sees it.
	ro := openDB(t, l.path, bolt.Options{ReadOnly: true, Keys: l.keys})
	v := view(t, ro, "pods")
	at := -1
	var diffs []error
	for i, m := range l.since {
		diff := m.Diff(v)
		if diff == nil {
			at = i
			break
		}
		diffs = append(diffs, diff)
	}
	v.Close()
	require.NoError(t, ro.Close())
	require.GreaterOrEqual(t, at, 0, "the file is in none of %d states since the newest flush: %v", len(l.since), diffs)
	l.since = []*storetest.Model{l.since[at].Clone()}
	l.open(t)
}

// TestCrashModel drives store, memtable, journal, folds and builds of indexes with random batches,
// flushes, relists, other indexes and crashes. Every view, old or new, always equals the model of
// its moment, and a crash never leaves less than the newest flush, nor a state that did not exist.
func TestCrashModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { crashModel(t, bolt.Keyring{}) })
}

// TestCrashModelEncrypted is TestCrashModel with a file that is encrypted with one key, with
// another, or in clear. Only a compaction changes that, which may come late.
func TestCrashModelEncrypted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { crashModel(t, bolt.Keyring{Primary: newKey(1)}) })
}

// rekey opens the file again with random keys, among which is that of the file.
func (l *life) rekey(t *rapid.T) {
	l.closeViews()
	require.NoError(t, l.db.Close())
	l.keys = bolt.Keyring{Previous: []*bolt.EncryptionKey{newKey(1), newKey(2)}}
	if n := rapid.ByteRange(0, 2).Draw(t, "key"); n > 0 {
		l.keys.Primary = newKey(n)
	}
	l.open(t)
}

func crashModel(t *rapid.T, keys bolt.Keyring) {
	dir, err := os.MkdirTemp("", "crash")
	require.NoError(t, err)
	l := &life{dir: dir, keys: keys, path: filepath.Join(dir, "0.db")}
	defer func() {
		l.closeViews()
		require.NoError(t, l.db.Close())
		report := checkReport(t, l.path, l.keys)
		require.Empty(t, report.Problems)
		require.NoError(t, os.RemoveAll(dir))
	}()
	l.slice = rapid.SampledFrom([]int{1, 16 << 10, 32 << 10, 1 << 20}).Draw(t, "slice")
	l.indexes = lifeIndexes()
	l.since = []*storetest.Model{storetest.NewModel(storetest.Info("pods"), l.indexes...)}
	l.open(t)
	durable := func() { l.since = []*storetest.Model{l.now()} }

	t.Repeat(map[string]func(*rapid.T){
		"apply": func(t *rapid.T) {
			b := store.Batch{Changes: l.changes(t), Checkpoint: l.checkpoint(t)}
			require.NoError(t, l.coll.Apply(b))
			next := l.now().Clone()
			next.Apply(b)
			l.since = append(l.since, next)
		},
		"flush": func(t *rapid.T) { require.NoError(t, l.db.Flush()); durable() },
		"fold":  func(t *rapid.T) { foldSlices(t, l.db, l.slice, 0); durable() },
		// Reads, writes, a crash and a fold that is cut too must work on a file in which a fold is
		// half done.
		"half a fold": func(t *rapid.T) {
			foldSlices(t, l.db, l.slice, rapid.IntRange(1, 12).Draw(t, "slices"))
			durable()
		},
		"replace": func(t *rapid.T) {
			r, err := l.coll.Replace()
			require.NoError(t, err)
			var all []store.Change
			for range rapid.IntRange(0, 3).Draw(t, "parts") {
				part := l.changes(t)
				all = append(all, part...)
				require.NoError(t, r.Apply(part))
				l.build(t)
				if rapid.IntRange(0, 3).Draw(t, "compact") == 0 {
					l.compact(t)
				}
			}
			if rapid.Bool().Draw(t, "abort") {
				require.NoError(t, r.Abort())
				return
			}
			cp := l.checkpoint(t)
			next := l.now().Clone()
			next.Replace(storetest.Info("pods"), all, cp)
			require.NoError(t, r.Commit(cp))
			l.since = []*storetest.Model{next}
		},
		"reopen": func(t *rapid.T) {
			l.closeViews()
			require.NoError(t, l.db.Close())
			durable()
			l.open(t)
		},
		"rekey": func(t *rapid.T) {
			if keys.Primary == nil {
				t.Skip("without encryption")
			}
			l.rekey(t)
			durable()
		},
		"crash":   l.crash,
		"reindex": l.reindex,
		"build":   l.build,
		"compact": l.compact,
		"keep a view": func(t *rapid.T) {
			if len(l.views) > 4 {
				l.closeViews()
			}
			v, err := l.coll.View()
			require.NoError(t, err)
			l.views, l.models = append(l.views, v), append(l.models, l.now().Clone())
		},
		"": func(t *rapid.T) {
			v, err := l.coll.View()
			require.NoError(t, err)
			defer v.Close()
			l.now().Equal(t, v)
			require.Equal(t, l.now().State(), l.coll.State())
			for i, old := range l.views {
				l.models[i].Equal(t, old)
			}
		},
	})
}

// If an entry of the journal is corrupt, it and the later ones are lost, and none before it.
func TestCorruptJournal(t *testing.T) {
	db, path := newDB(t, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("pods"))
	replaceAll(t, c, nil, 1)
	for i := range 5 {
		require.NoError(t, c.Apply(store.Batch{
			Changes:    []store.Change{storetest.Put(storetest.Object("ns", fmt.Sprintf("o-%d", i), "u", fmt.Sprint(i+10), nil, "x"))},
			Checkpoint: storetest.Checkpoint(i + 10),
		}))
		require.NoError(t, db.Flush())
	}
	raw := readFile(t, path)
	crashed := filepath.Join(t.TempDir(), "crashed.db")
	require.NoError(t, os.WriteFile(crashed, raw, 0o600))
	flipJournal(t, crashed, 3)

	db = openDB(t, crashed, bolt.Options{})
	require.ErrorAs(t, db.JournalCorruption(), new(*store.CorruptionError))
	check := func(db *bolt.DB) {
		v := view(t, db, "pods")
		defer v.Close()
		require.Equal(t, "12", v.State().RV)
		require.EqualValues(t, 3, v.State().Count)
		_, err := v.Get("ns/o-2")
		require.NoError(t, err)
		_, err = v.Get("ns/o-3")
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	check(db)
	require.NoError(t, db.Close())
	db = openDB(t, crashed, bolt.Options{})
	defer db.Close()
	require.NoError(t, db.JournalCorruption(), "the corrupt part of the journal is gone after an opening")
	check(db)
}

// halfFold makes a file in which a fold is half done. Its journal has five entries.
func halfFold(t *testing.T) (path string) {
	db, live := newDB(t, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("pods"))
	replaceAll(t, c, nil, 1)
	for i := range 5 {
		require.NoError(t, c.Apply(store.Batch{
			Changes:    []store.Change{storetest.Put(storetest.Object("ns", fmt.Sprintf("o-%d", i), "u", fmt.Sprint(i+10), nil, "x"))},
			Checkpoint: storetest.Checkpoint(i + 10),
		}))
		require.NoError(t, db.Flush())
	}
	foldSlices(t, db, 1, 1)
	raw := readFile(t, live)
	path = filepath.Join(t.TempDir(), "half.db")
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	return path
}

// If a fold is half done, the buckets have some changes that are newer than a corrupt entry of the
// journal: there is no state before the corruption to go back to. Only corruption in entries
// flushed after the fold was cut is harmless.
func TestJournal_CorruptInHalfDoneFold_IsRefused(t *testing.T) {
	path := halfFold(t)
	flipJournal(t, path, 3)
	for _, readOnly := range []bool{true, false} {
		_, err := bolt.Open(path, bolt.Options{ReadOnly: readOnly})
		require.ErrorAs(t, err, new(*store.CorruptionError))
	}
	_, err := bolt.Check(path, bolt.Keyring{}, nil)
	require.ErrorAs(t, err, new(*store.CorruptionError))

	path = halfFold(t)
	db := openDB(t, path, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("pods"))
	require.NoError(t, c.Apply(store.Batch{Checkpoint: storetest.Checkpoint(99)}))
	require.NoError(t, db.Flush())
	raw := readFile(t, path)
	require.NoError(t, db.Close())
	path = filepath.Join(t.TempDir(), "crashed.db")
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	flipJournal(t, path, 5)
	db = openDB(t, path, bolt.Options{})
	defer db.Close()
	require.ErrorAs(t, db.JournalCorruption(), new(*store.CorruptionError))
	v := view(t, db, "pods")
	defer v.Close()
	require.Equal(t, "14", v.State().RV)
	require.EqualValues(t, 5, v.State().Count)
}

// completesFold opens a file whose fold is half done, requires so many objects, and closes it: then it is
// shut down cleanly, and nothing is half done.
func completesFold(t *testing.T, path string, objects int) {
	t.Helper()
	db := openDB(t, path, bolt.Options{})
	v := view(t, db, "pods")
	require.EqualValues(t, objects, v.State().Count)
	v.Close()
	require.NoError(t, db.Close())
	require.Equal(t, bolt.Clean, bolt.LastShutdown(path))
	report := checkReport(t, path, bolt.Keyring{})
	require.Empty(t, report.Notes)
}

// If the last fold fails when the file is closed, the file is not marked as shut down cleanly.
func TestFold_FailedAtClose_IsNotCleanShutdown(t *testing.T) {
	db, path := newDB(t, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("pods"))
	replaceAll(t, c, nil, 1)
	require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{storetest.Put(storetest.Object("ns", "a", "u", "9", nil, "x"))}, Checkpoint: storetest.Checkpoint(9)}))
	require.NoError(t, db.Flush())
	foldSlices(t, db, 1, 1)
	failed := errors.New("the fold failed")
	require.ErrorIs(t, db.CloseFailing(failed), failed)
	require.Equal(t, bolt.Crashed, bolt.LastShutdown(path))
	report := checkReport(t, path, bolt.Keyring{})
	require.Empty(t, report.Problems)
	require.Contains(t, fmt.Sprint(report.Notes), "half done")

	completesFold(t, path, 1)
}

// If a process is killed while Close folds, the file is not marked as shut down cleanly.
func TestFold_HalfDone_IsNotCleanShutdown(t *testing.T) {
	db, path := newDB(t, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("pods"))
	replaceAll(t, c, nil, 1)
	var puts []store.Change
	for i := range 300 { // some slices
		puts = append(puts, storetest.Put(storetest.Object("ns", fmt.Sprint("o-", i), "u", "9", nil, incompressibles(i, 12))))
	}
	require.NoError(t, c.Apply(store.Batch{Changes: puts, Checkpoint: storetest.Checkpoint(9)}))
	require.NoError(t, db.Flush())
	var killed []string
	db.OnCommit(func() { killed = append(killed, asKilled(t, path)) })
	require.NoError(t, db.Close())
	require.Equal(t, bolt.Clean, bolt.LastShutdown(path))
	report := checkReport(t, path, bolt.Keyring{})
	require.Empty(t, report.Notes)

	halves := 0
	for _, path := range killed {
		report := checkReport(t, path, bolt.Keyring{})
		require.Empty(t, report.Problems)
		if strings.Contains(fmt.Sprint(report.Notes), "half done") {
			require.Equal(t, bolt.Crashed, bolt.LastShutdown(path))
			halves++
		}
		completesFold(t, path, len(puts))
	}
	require.Positive(t, halves)
}

// Changes that were never flushed are folded in one transaction or, if they are too large for that,
// flushed first: after half a fold, the buckets would be ahead of the journal.
func TestFold_UnflushedChanges_IsAtomic(t *testing.T) {
	db, _ := newDB(t, bolt.Options{FlushInterval: time.Hour})
	c := openCollection(t, db, storetest.Info("pods"))
	replaceAll(t, c, nil, 1)
	apply := func(from, n int) {
		var changes []store.Change
		for i := from; i < from+n; i++ {
			changes = append(changes, storetest.Put(storetest.Object("ns", fmt.Sprint("o-", i), "u", fmt.Sprint(i), nil, "x")))
		}
		require.NoError(t, c.Apply(store.Batch{Changes: changes, Checkpoint: goingOn(from + n)}))
	}
	fold := func(limit int) (slices int) {
		slices = 1
		require.NoError(t, db.FoldSlices(limit, func() bool { slices++; return true }))
		return slices
	}
	before := db.Stats().Commits
	apply(10, 1)
	require.Equal(t, 1, fold(16<<10))
	require.Equal(t, before+1, db.Stats().Commits)

	// Few cells, one of which is larger than a slice.
	services := openCollection(t, db, storetest.Info("services"))
	replaceAll(t, services, nil, 1)
	before = db.Stats().Commits
	large := storetest.Put(storetest.Object("ns", "large", "u", "12", nil, incompressibles(1, 100)))
	require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{large}, Checkpoint: goingOn(12)}))
	require.NoError(t, services.Apply(store.Batch{Checkpoint: goingOn(12)}))
	require.Equal(t, 1, fold(24<<10))
	require.Equal(t, before+1, db.Stats().Commits)

	apply(20, 6) // one more would make a dictionary, which causes a fold
	slices := fold(16 << 10)
	require.Greater(t, slices, 1)
	require.Equal(t, before+1+1+int64(slices), db.Stats().Commits, "an entry of the journal, and the slices")
}
