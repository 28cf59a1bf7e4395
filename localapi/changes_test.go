package localapi

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// goesOn returns a checkpoint that continues the history of the previous one.
func goesOn(rv int) store.Checkpoint {
	cp := storetest.Checkpoint(rv)
	cp.Cluster, cp.ListReason = "one", store.ReasonExpired
	return cp
}

// at returns the time at which changes with checkpoint rv were received.
func at(rv int) time.Time { return goesOn(rv).Proven() }

// put stores an object with characters that encoding/json would escape.
func put(ns, name, uid string, rv int) store.Change {
	o, err := object.Parse(fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":"%d"},"data":{"payload":"<%d>"}}`, ns, name, uid, rv, rv))
	if err != nil {
		panic(err) // only for bad names, which no test uses
	}
	return storetest.Put(o)
}

func del(key string, rv int) store.Change { return store.Change{Key: key, RV: fmt.Sprint(rv)} }

func replace(t *testing.T, c store.Collection, cp store.Checkpoint, changes ...store.Change) {
	t.Helper()
	r, err := c.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply(changes))
	require.NoError(t, r.Commit(cp))
}

func apply(t *testing.T, c store.Collection, cp store.Checkpoint, changes ...store.Change) {
	t.Helper()
	require.NoError(t, c.Apply(store.Batch{Changes: changes, Checkpoint: cp}))
}

// eventful returns a collection that has changed since its list.
func eventful(t *testing.T, db store.DB) store.Collection {
	c, err := db.Open(storetest.Info("configmaps"))
	require.NoError(t, err)
	replace(t, c, goesOn(10), put("a", "x", "u1", 4), put("a", "y", "u2", 7), put("b", "z", "u3", 8))
	apply(t, c, goesOn(12), put("a", "x", "u1", 11), put("b", "n", "u4", 12))
	apply(t, c, goesOn(15), put("a", "x", "u1", 13), del("a/y", 14), put("b", "n", "u4", 15))
	apply(t, c, goesOn(18), del("b/n", 17), put("a", "y", "u5", 18))
	return c
}

// eventfulStore is a store with its eventful collection.
type eventfulStore struct {
	store.DB
	store.Collection
}

func newEventful(t *testing.T) eventfulStore {
	db, _ := newBolt(t)
	return eventfulStore{db, eventful(t, db)}
}

// line formats a change in short form.
func line(c Change) string {
	if c.Type == Bookmark {
		return "BOOKMARK " + c.ResourceVersion
	}
	return fmt.Sprintf("%s %s %s", c.ResourceVersion, c.Type, object.Key(c.Namespace, c.Name))
}

func changeLines(src Source, q ChangeQuery) (lines []string, err error) {
	err = src.Changes(context.Background(), "configmaps", q, func(c Change) error {
		lines = append(lines, line(c))
		return nil
	})
	return lines, err
}

// Every Source delivers the same changes.
func TestChanges(t *testing.T) {
	closed, path := newBolt(t)
	eventful(t, closed)
	require.NoError(t, closed.Close())
	file, err := bolt.Open(path, bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	ways := []namedSource{{"file", FromDB(file, options(t, "bolt"))}}
	s := newEventful(t)
	src := FromDB(s.DB, options(t, "bolt"))
	ways = append(ways, namedSource{"bolt", src}, namedSource{"socket", serve(t, src)})
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			for _, tc := range []struct {
				q    ChangeQuery
				want []string
			}{
				{ChangeQuery{Since: "10"}, []string{"13 MODIFIED a/x", "14 DELETED a/y", "18 ADDED a/y", "BOOKMARK 18"}},
				{ChangeQuery{Since: "15"}, []string{"17 DELETED b/n", "18 ADDED a/y", "BOOKMARK 18"}},
				{ChangeQuery{Since: "018"}, []string{"BOOKMARK 18"}},
				{ChangeQuery{Since: "12", Namespace: "b"}, []string{"17 DELETED b/n", "BOOKMARK 18"}},
				{ChangeQuery{Since: "12", Key: "b/n"}, []string{"17 DELETED b/n", "BOOKMARK 18"}},
				{ChangeQuery{Since: "10", Key: "a/y"}, []string{"14 DELETED a/y", "18 ADDED a/y", "BOOKMARK 18"}},
				{ChangeQuery{Since: "10", Key: "b/z"}, []string{"BOOKMARK 18"}},
				{ChangeQuery{Since: "10", Namespace: "c"}, []string{"BOOKMARK 18"}},
				{ChangeQuery{SinceTime: at(10).Add(time.Second)}, []string{"13 MODIFIED a/x", "14 DELETED a/y", "18 ADDED a/y", "BOOKMARK 18"}},
				{ChangeQuery{SinceTime: at(15)}, []string{"13 MODIFIED a/x", "14 DELETED a/y", "17 DELETED b/n", "18 ADDED a/y", "BOOKMARK 18"}},
				{ChangeQuery{SinceTime: at(15).Add(999 * time.Millisecond)}, []string{"13 MODIFIED a/x", "14 DELETED a/y", "17 DELETED b/n", "18 ADDED a/y", "BOOKMARK 18"}},
				{ChangeQuery{SinceTime: at(15).Add(time.Second), Namespace: "a"}, []string{"18 ADDED a/y", "BOOKMARK 18"}},
				{ChangeQuery{SinceTime: at(19)}, []string{"BOOKMARK 18"}},
			} {
				got, err := changeLines(way.src, tc.q)
				require.NoError(t, err, "%+v", tc.q)
				require.Equal(t, tc.want, got, "%+v", tc.q)
			}
			testChangeFields(t, way.src)
			testChangeErrors(t, way.src)
		})
	}
}

func testChangeFields(t *testing.T, src Source) {
	for _, objects := range []bool{true, false} {
		var got []Change
		require.NoError(t, src.Changes(context.Background(), "configmaps", ChangeQuery{Since: "10", Objects: objects}, func(c Change) error {
			got = append(got, c)
			return nil
		}))
		require.Len(t, got, 4)
		var versions, payloads []string
		for i, c := range got {
			if !objects || c.Type == Bookmark {
				require.Nil(t, c.Object)
				continue
			}
			payload, _ := c.Object.Field("data.payload")
			versions, payloads = append(versions, c.Object.GetResourceVersion()), append(payloads, payload)
			require.Contains(t, string(c.Object.Raw()), `"payload":"<`, "the object's bytes are unchanged")
			got[i].Object = nil
		}
		require.Equal(t, []Change{
			{Type: store.Modified, ResourceVersion: "13", Time: at(15), Namespace: "a", Name: "x"},
			{Type: store.Deleted, ResourceVersion: "14", Time: at(15), Namespace: "a", Name: "y"},
			{Type: store.Added, ResourceVersion: "18", Time: at(18), Namespace: "a", Name: "y"},
			{Type: Bookmark, ResourceVersion: "18"},
		}, got)
		if objects {
			require.Equal(t, []string{"13", "7", "18"}, versions, "a deletion has the last state of the object")
			require.Equal(t, []string{"<13>", "<7>", "<18>"}, payloads)
		}
	}
}

func testChangeErrors(t *testing.T, src Source) {
	for _, tc := range []struct {
		q    ChangeQuery
		want error
		text string
	}{
		{ChangeQuery{Since: "9"}, ErrTooOld, "collection configmaps: resourceVersion 9 is too old: the history begins after RV 10, at 2026-01-02T03:14:07Z: list again"},
		{ChangeQuery{Since: "x"}, ErrTooOld, "collection configmaps: resourceVersion x is too old: the history begins after RV 10, at 2026-01-02T03:14:07Z: list again"},
		{ChangeQuery{SinceTime: at(10)}, ErrTooOld, "collection configmaps: 2026-01-02T03:14:07Z is too old: the history begins after RV 10, at 2026-01-02T03:14:07Z: list again"},
		{ChangeQuery{Since: "19"}, store.ErrAhead, "collection configmaps: resourceVersion 19 is ahead of the cache, which is at 18"},
		{ChangeQuery{}, ErrBadQuery, "bad query: either since, a resourceVersion, or sinceTime is needed"},
		{ChangeQuery{Since: "10", SinceTime: at(10)}, ErrBadQuery, ""},
		{ChangeQuery{Since: "10", Follow: true}, ErrNoFollow, "collection configmaps: following needs the running agent"},
	} {
		lines, err := changeLines(src, tc.q)
		require.ErrorIs(t, err, tc.want, "%+v", tc.q)
		require.Empty(t, lines)
		if tc.text != "" {
			require.EqualError(t, err, tc.text)
		}
	}
	full := errors.New("full")
	require.ErrorIs(t, src.Changes(context.Background(), "configmaps", ChangeQuery{Since: "10"}, func(Change) error { return full }), full)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, src.Changes(ctx, "configmaps", ChangeQuery{Since: "10"}, nil), context.Canceled)
	require.ErrorIs(t, src.Changes(context.Background(), "absent", ChangeQuery{Since: "10"}, nil), store.ErrNoCollection)
}

// For cluster-scoped objects the namespace is ignored, and names have no slash.
func TestChangesInNoNamespace(t *testing.T) {
	db, _ := newBolt(t)
	info := storetest.Info("configmaps")
	info.Namespaced = false
	c, err := db.Open(info)
	require.NoError(t, err)
	replace(t, c, goesOn(10), put("", "edge-1", "u1", 4))
	apply(t, c, goesOn(12), put("", "edge-2", "u2", 12))
	got, err := changeLines(FromDB(db, Options{}), ChangeQuery{Since: "10", Namespace: "a"})
	require.NoError(t, err)
	require.Equal(t, []string{"12 ADDED edge-2", "BOOKMARK 12"}, got)
}

// A change past the checkpoint is delivered again to a client that resumes at the checkpoint. An
// object that appeared past the checkpoint is delivered only once the checkpoint is past it;
// otherwise its deletion would never be delivered.
func TestChangesPastTheCheckpoint(t *testing.T) {
	s := newEventful(t)
	src := FromDB(s.DB, options(t, "bolt"))
	apply(t, s.Collection, goesOn(20), put("a", "x", "u1", 22), put("b", "new", "u9", 23))
	got, err := changeLines(src, ChangeQuery{Since: "18"})
	require.NoError(t, err)
	require.Equal(t, []string{"22 MODIFIED a/x", "BOOKMARK 20"}, got)
	apply(t, s.Collection, goesOn(23))
	got, err = changeLines(src, ChangeQuery{Since: "20"})
	require.NoError(t, err)
	require.Equal(t, []string{"22 MODIFIED a/x", "23 ADDED b/new", "BOOKMARK 23"}, got)
}

// The changes after a state that the cache never had are not known: an object that had been created
// then may be gone without a trace.
func TestChangesInAGap(t *testing.T) {
	s := newEventful(t)
	require.NoError(t, s.Apply(store.Batch{
		Changes: []store.Change{put("a", "x", "u1", 30)}, Checkpoint: goesOn(30), Gap: &store.Gap{First: "20"},
	}))
	src := FromDB(s.DB, options(t, "bolt"))
	_, err := changeLines(src, ChangeQuery{Since: "25"})
	require.ErrorIs(t, err, ErrTooOld)
	require.ErrorContains(t, err, "resourceVersion 25")
	for _, since := range []string{"18", "19"} {
		got, err := changeLines(src, ChangeQuery{Since: since})
		require.NoError(t, err)
		require.Equal(t, []string{"30 MODIFIED a/x", "BOOKMARK 30"}, got)
	}
}

// Since a time before a collection's first list: all that was ever received. The same time is too old
// once a change is gone.
func TestChangesSinceBeforeFirstList(t *testing.T) {
	s := newEventful(t)
	first := goesOn(10)
	first.ListReason = store.ReasonInitial
	require.NoError(t, s.DB.Drop("configmaps"))
	c, err := s.DB.Open(storetest.Info("configmaps"))
	require.NoError(t, err)
	replace(t, c, first, put("a", "x", "u1", 4), put("a", "y", "u2", 7))
	src := FromDB(s.DB, options(t, "bolt"))
	for _, tc := range []namedSource{{"bolt", src}, {"socket", serve(t, src)}} {
		for _, since := range []time.Time{at(1), at(10)} {
			got, err := changeLines(tc.src, ChangeQuery{SinceTime: since})
			require.NoError(t, err, tc.name)
			require.Equal(t, []string{"BOOKMARK 10"}, got, tc.name)
		}
		status, err := tc.src.Status(context.Background())
		require.NoError(t, err)
		require.Equal(t, store.Horizon{RV: "10", Time: at(10), First: true}, status.Collections[0].HistorySince, tc.name)
	}
	apply(t, c, goesOn(12), put("a", "x", "u1", 11), put("b", "n", "u4", 12))
	got, err := changeLines(src, ChangeQuery{SinceTime: at(1)})
	require.NoError(t, err)
	require.Equal(t, []string{"11 MODIFIED a/x", "12 ADDED b/n", "BOOKMARK 12"}, got)
	apply(t, c, goesOn(13), put("a", "x", "u1", 13), del("a/y", 13))
	_, err = changeLines(src, ChangeQuery{SinceTime: at(1)})
	require.ErrorIs(t, err, ErrTooOld, "no resourceVersion is left for the deletion")
}

// A store without a history answers with the remedy.
func TestChanges_NoHistory(t *testing.T) {
	db := memory.New()
	defer db.Close()
	fill(t, db, storetest.Info("configmaps"), true, nil)
	src := FromDB(db, options(t, "memory"))
	for _, tc := range []namedSource{{"memory", src}, {"socket", serve(t, src)}} {
		for _, q := range []ChangeQuery{{Since: "4"}, {Since: "5"}, {SinceTime: at(10)}} {
			_, err := changeLines(tc.src, q)
			require.ErrorIs(t, err, store.ErrNoHistory, tc.name)
			require.EqualError(t, err, "collection configmaps: the store keeps no history of changes: "+
				"it is in memory, see snapcache status and store.type in the agent's configuration")
		}
	}
	answer := get(t, serveHandler(t, Handler(src)), "/v1alpha1/collections/configmaps/changes?since=5")
	require.Equal(t, 501, answer.code)
	require.Contains(t, string(answer.body), `"reason":"NoHistory"`)
}

// Corrupt entries don't hide the others, but no bookmark follows them.
func TestChangesCorrupt(t *testing.T) {
	db, path := newBolt(t)
	eventful(t, db)
	require.NoError(t, db.Close())
	spoil(t, path, "configmaps", "a/x")
	db, err := bolt.Open(path, bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	src := FromDB(db, options(t, "bolt"))
	for _, tc := range []namedSource{{"bolt", src}, {"socket", serve(t, src)}} {
		got, err := changeLines(tc.src, ChangeQuery{Since: "10"})
		requireDamage(t, err, "a/x")
		require.Equal(t, []string{"14 DELETED a/y", "18 ADDED a/y"}, got, tc.name)
		got, err = changeLines(tc.src, ChangeQuery{Since: "10", Namespace: "b"})
		require.NoError(t, err, "entries outside the query don't matter")
		require.Equal(t, []string{"BOOKMARK 18"}, got, tc.name)
	}
}

// If the history as a whole is corrupt, only queries for changes fail.
func TestHistoryCorrupt(t *testing.T) {
	db, path := newBolt(t)
	eventful(t, db)
	require.NoError(t, db.Close())
	raw, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("c")).Bucket([]byte("configmaps"))
		return c.ForEachBucket(func(gen []byte) error { return c.Bucket(gen).Put([]byte("history"), []byte("{")) })
	}))
	require.NoError(t, raw.Close())
	db, err = bolt.Open(path, bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	src := FromDB(db, options(t, "bolt"))
	for _, tc := range []namedSource{{"bolt", src}, {"socket", serve(t, src)}} {
		for _, q := range []ChangeQuery{{Since: "10"}, {SinceTime: at(15)}} {
			got, err := changeLines(tc.src, q)
			require.ErrorAs(t, err, new(*store.CorruptionError), tc.name)
			require.Empty(t, got, tc.name)
		}
		keys, err := objectKeys(tc.src, "configmaps", ObjectQuery{})
		require.NoError(t, err, tc.name)
		require.Len(t, keys, 3, tc.name)
		status, err := tc.src.Status(context.Background())
		require.NoError(t, err, tc.name)
		require.Contains(t, status.Collections[0].Problem, "corrupt", tc.name)
		require.False(t, status.Collections[0].Corrupt, tc.name)
		require.Zero(t, status.Collections[0].HistorySince, tc.name)
	}
}

// The status contains the beginning of the history.
func TestStatusHasStartOfHistory(t *testing.T) {
	s := newEventful(t)
	src := FromDB(s.DB, options(t, "bolt"))
	for _, tc := range []namedSource{{"bolt", src}, {"socket", serve(t, src)}} {
		status, err := tc.src.Status(context.Background())
		require.NoError(t, err)
		require.Equal(t, store.Horizon{RV: "10", Time: at(10)}, status.Collections[0].HistorySince, tc.name)
	}
}

// TestChanges_WrongClock: changes since a time have all that came since then, also those that came while the clock
// was behind, and deletions of objects that came while it was ahead.
func TestChanges_WrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	want := []string{"17 DELETED b/n", "18 MODIFIED a/y", "19 MODIFIED a/z", "BOOKMARK 19"}
	for name, tc := range map[string]struct {
		first, then time.Duration // by which the clock was off: when b/n came, and when the changes since came
		want        []string
	}{
		"right":                     {0, 0, want},
		"two hours behind then":     {0, -2 * time.Hour, want},
		"26 years behind then":      {0, -26 * year, want},
		"two hours behind before":   {-2 * time.Hour, 0, want},
		"two hours ahead before":    {2 * time.Hour, 0, want},
		"14 years ahead before":     {14 * year, 0, want},
		"14 years ahead then":       {0, 14 * year, want},
		"ahead before, behind then": {14 * year, -26 * year, want},
	} {
		db, _ := newBolt(t)
		c, err := db.Open(storetest.Info("configmaps"))
		require.NoError(t, err)
		change := func(rv int, at time.Time, changes ...store.Change) {
			cp := goesOn(rv)
			cp.LastEvent, cp.LastBookmark, cp.LastList = at, time.Time{}, time.Time{}
			apply(t, c, cp, changes...)
		}
		begun := goesOn(10)
		begun.LastEvent, begun.LastBookmark, begun.LastList = time.Time{}, time.Time{}, now.Add(-5*time.Hour)
		replace(t, c, begun, put("a", "x", "u1", 4), put("a", "y", "u2", 7), put("a", "z", "u3", 8))
		change(11, now.Add(-4*time.Hour), put("a", "x", "u1", 11))
		change(12, now.Add(-4*time.Hour+tc.first), put("b", "n", "u4", 12))
		change(13, now.Add(-70*time.Minute), put("a", "x", "u1", 13))
		change(18, now.Add(-30*time.Minute+tc.then), del("b/n", 17), put("a", "y", "u2", 18))
		change(19, now.Add(-10*time.Minute), put("a", "z", "u3", 19))
		got, err := changeLines(FromDB(db, options(t, name)), ChangeQuery{SinceTime: now.Add(-time.Hour)})
		require.NoError(t, err)
		require.Equal(t, tc.want, got, name)
		require.NoError(t, db.Close())
	}
}
