package ledger

import (
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// note is a value of the tests.
type note struct {
	Owner string    `json:"owner"`
	At    time.Time `json:"at"`
	Text  string    `json:"text,omitempty"`
}

func owner(n *note, _ time.Time) (string, time.Time) { return n.Owner, n.At }

// ledger is a Ledger of 1,000 notes over a store that counts writes and can fail to be read.
type ledger struct {
	*Ledger[note]
	store.Collection
	applied, flushed atomic.Int32
	broken           error // of the next reads of all values, if it is not nil
	log              strings.Builder
}

// countedDB is a store that opens its collection as the ledger itself, and counts flushes.
type countedDB struct {
	store.DB
	of *ledger
}

func (db countedDB) Open(info store.Info, x ...store.Index) (store.Collection, error) {
	c, err := db.DB.Open(info, x...)
	db.of.Collection = c
	return db.of, err
}

func (db countedDB) Flush() error {
	db.of.flushed.Add(1)
	return db.DB.Flush()
}

func (l *ledger) Apply(b store.Batch) error {
	l.applied.Add(1)
	keys := map[string]bool{}
	for _, c := range b.Changes {
		if keys[c.Key] {
			return fmt.Errorf("the batch has %s twice", c.Key)
		}
		keys[c.Key] = true
	}
	return l.Collection.Apply(b)
}

func (l *ledger) View() (store.View, error) {
	v, err := l.Collection.View()
	if l.broken != nil && err == nil {
		v = brokenView{v, l.broken}
	}
	return v, err
}

// brokenView is a view whose first object can't be read.
type brokenView struct {
	store.View
	err error
}

func (v brokenView) Objects(from, after string) iter.Seq2[*object.Object, error] {
	return func(yield func(*object.Object, error) bool) {
		if !yield(nil, v.err) {
			return
		}
		first := true
		for o, err := range v.View.Objects(from, after) {
			if !first && !yield(o, err) {
				return
			}
			first = false
		}
	}
}

func newLedger(t *testing.T, db store.DB, change func(*Options[note])) *ledger {
	t.Helper()
	l := &ledger{}
	opts := Options[note]{
		Resource: "notes", Kind: "Note", Owner: owner, Max: 1000, MaxBytes: 1 << 30, Log: slog.New(slog.NewTextHandler(&l.log, nil)),
	}
	if change != nil {
		change(&opts)
	}
	var err error
	l.Ledger, err = Open(countedDB{db, l}, opts)
	require.NoError(t, err)
	return l
}

func inMemory(t *testing.T, change func(*Options[note])) *ledger {
	t.Helper()
	db := memory.New()
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return newLedger(t, db, change)
}

// put stores a note of an owner, made some time after the start.
func (l *ledger) put(t *testing.T, owner string, key any, after time.Duration, bytes int) {
	t.Helper()
	require.NoError(t, l.Update(name(owner, key), start, func(*note) *note {
		return &note{owner, start.Add(after), strings.Repeat("x", bytes)}
	}))
}

func (l *ledger) has(owner string, key any) bool {
	_, err := l.Get(name(owner, key))
	return err == nil
}

func name(owner string, key any) string { return fmt.Sprint(owner, "-", key) }

// TestUpdate checks that values are stored, replaced and deleted, and that nothing is written in vain.
func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.db")
	db, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	l := newLedger(t, db, nil)
	_, err = l.Get("a")
	require.ErrorIs(t, err, store.ErrNotFound)
	set := func(want *note, next *note) {
		t.Helper()
		require.NoError(t, l.Update("a", start, func(was *note) *note {
			require.Equal(t, want, was)
			return next
		}))
	}
	one, two := &note{Owner: "x", At: start}, &note{Owner: "y", At: start, Text: `"}`}
	set(nil, nil)
	require.Zero(t, l.applied.Load(), "there is nothing to delete")
	set(nil, one)
	set(one, two)
	require.NoError(t, l.Update("a", start, func(was *note) *note { return was }))
	require.EqualValues(t, 2, l.applied.Load(), "the value stays")
	require.EqualValues(t, 2, l.flushed.Load())
	require.NoError(t, db.Close())

	db, err = bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	l = newLedger(t, db, nil)
	set(two, nil)
	require.False(t, l.has("a", ""))
	require.NoError(t, db.Close())
}

// TestFormerRecords checks that values are read which an earlier version has stored as whole
// Kubernetes objects.
func TestFormerRecords(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "notes.db"), bolt.Options{})
	require.NoError(t, err)
	l := newLedger(t, db, nil)
	o, err := object.Parse([]byte(`{"kind":"Note","apiVersion":"snapcache/v1","metadata":{"name":"a","resourceVersion":"1"},` +
		`"owner":"x","at":"2026-11-01T12:00:00Z"}`))
	require.NoError(t, err)
	require.NoError(t, l.Apply(store.Batch{Changes: []store.Change{{Key: "a", Object: o}}}))
	for _, text := range []string{"b", "c"} {
		require.NoError(t, l.Update("a", start, func(was *note) *note {
			require.NotNil(t, was)
			require.Equal(t, "x", was.Owner)
			require.Equal(t, start, was.At)
			return &note{was.Owner, was.At, text}
		}))
	}
	require.NoError(t, db.Close())
}

// TestLimits checks how many values are stored, and which are deleted for new ones.
func TestLimits(t *testing.T) {
	t.Run("of one owner, the first", func(t *testing.T) {
		l := inMemory(t, nil)
		for i := range 1001 {
			l.put(t, "a", i, time.Duration(i), 0)
		}
		require.EqualValues(t, 901, l.State().Count)
		require.False(t, l.has("a", 99))
		require.True(t, l.has("a", 100))
		require.True(t, l.has("a", 1000))
	})
	t.Run("of the owner with the most", func(t *testing.T) {
		l := inMemory(t, nil)
		for i := range 100 {
			l.put(t, "kubelet", i, 0, 0)
			l.put(t, name("pod", i%10), i, 0, 0)
		}
		for i := range 1100 {
			l.put(t, "greedy", i, time.Minute, 0)
			require.LessOrEqual(t, l.State().Count, int64(1000))
		}
		for i := range 100 {
			require.True(t, l.has("kubelet", i))
			require.True(t, l.has(name("pod", i%10), i))
		}
	})
	t.Run("of as many owners", func(t *testing.T) {
		l := inMemory(t, nil)
		for i := range 2000 {
			l.put(t, fmt.Sprint(i), "", 0, 0)
			require.GreaterOrEqual(t, l.State().Count, int64(min(i+1, 900)))
		}
	})
	t.Run("bytes", func(t *testing.T) {
		l := inMemory(t, func(o *Options[note]) { o.MaxBytes = 1 << 20 })
		for i := range 100 {
			l.put(t, "kubelet", i, 0, 0)
		}
		for i := range 200 {
			l.put(t, "greedy", i, time.Minute, 10<<10)
			require.LessOrEqual(t, l.State().Bytes, int64(1<<20+11<<10))
		}
		require.Greater(t, l.State().Count, int64(100+80), "most stay")
		for i := range 100 {
			require.True(t, l.has("kubelet", i))
		}
	})
	t.Run("none more if the stored ones can't be read", func(t *testing.T) {
		l := inMemory(t, nil)
		for i := range 1000 {
			l.put(t, "a", i, 0, 0)
		}
		l.broken = store.ErrViewExpired
		err := l.Update("new", start, func(*note) *note { return &note{} })
		require.ErrorContains(t, err, "no room can be made: view was open for too long")
		require.EqualValues(t, 1000, l.State().Count)
		require.NoError(t, l.Update(name("a", 1), start, func(*note) *note { return nil }))
		require.NoError(t, l.Update("new", start, func(*note) *note { return &note{} }), "there is room")
		l.broken = &store.CorruptionError{Key: name("a", 0)}
		l.put(t, "b", 1, 0, 0)
		require.False(t, l.has("a", 0), "it is damaged")
	})
}

// TestExpired checks that expired values are deleted, at most once an hour, and never the one of which
// the key gets a new value.
func TestExpired(t *testing.T) {
	l := inMemory(t, func(o *Options[note]) {
		o.Expired = func(n *note, now time.Time) bool { return now.After(n.At) }
	})
	put := func(key string, expires, after time.Duration) {
		require.NoError(t, l.Update(name("a", key), start.Add(after), func(*note) *note {
			return &note{Owner: "a", At: start.Add(expires)}
		}))
	}
	put("short", time.Minute, 0)
	put("long", 10*time.Hour, 0)
	put("other", 10*time.Hour, 2*time.Minute)
	require.True(t, l.has("a", "short"), "not yet: it would be a write more")
	put("other", 10*time.Hour, time.Hour)
	require.False(t, l.has("a", "short"))
	require.True(t, l.has("a", "long"))
	put("short", time.Minute, time.Hour)
	put("short", 10*time.Hour, 3*time.Hour)
	require.True(t, l.has("a", "short"), "it was replaced")
}

func TestShare(t *testing.T) {
	for _, tc := range []struct {
		weights []int64
		want    int64
	}{
		{[]int64{10}, 6}, {[]int64{3, 3}, 6}, {[]int64{5, 1}, 6}, {[]int64{5, 2}, 4}, {[]int64{1, 1, 1, 9}, 3},
		{[]int64{1, 1, 1, 1, 1, 1, 1, 1}, 0},
	} {
		require.Equal(t, tc.want, share(tc.weights, 6), tc.weights)
	}
}
