package localapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// happened is an event of a server, which the store may not have received yet.
type happened struct {
	rv       int
	key, uid string // no uid is a deletion
}

// world is a server, and a collection that receives its events key by key as from the queue: those
// of some keys early, with a checkpoint before all pending events.
type world struct {
	t       *rapid.T
	db      store.DB
	c       store.Collection
	rv      int
	pending []happened
	known   map[string]string // the store's content: UID by key
}

func newWorld(t *rapid.T) *world {
	dir, err := os.MkdirTemp("", "changes")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	db, err := bolt.Open(filepath.Join(dir, "cache.db"), bolt.Options{HistoryRetention: storetest.HistoryRetention})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c, err := db.Open(storetest.Info("configmaps"))
	require.NoError(t, err)
	w := &world{t: t, db: db, c: c, rv: 10, known: map[string]string{}}
	w.list()
	return w
}

// happen creates one event on the server.
func (w *world) happen() {
	key := "ns/" + rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(w.t, "key")
	uid := w.known[key]
	for _, h := range w.pending {
		if h.key == key {
			uid = h.uid
		}
	}
	w.rv++
	switch {
	case uid == "":
		uid = fmt.Sprint("uid-", w.rv)
	case rapid.Bool().Draw(w.t, "deleted"):
		uid = ""
	}
	w.pending = append(w.pending, happened{w.rv, key, uid})
}

func (w *world) change(h happened) store.Change {
	if h.uid == "" {
		delete(w.known, h.key)
		return del(h.key, h.rv)
	}
	w.known[h.key] = h.uid
	return put("ns", h.key[len("ns/"):], h.uid, h.rv)
}

// take applies the newest event of some keys to the store.
func (w *world) take(all bool) {
	newest := map[string]happened{}
	var left []happened
	chosen := map[string]bool{}
	for _, h := range w.pending {
		if _, ok := chosen[h.key]; !ok {
			chosen[h.key] = all || rapid.Bool().Draw(w.t, "taken")
		}
		if chosen[h.key] {
			newest[h.key] = h
		} else {
			left = append(left, h)
		}
	}
	w.pending = left
	cp := w.rv
	if len(left) > 0 {
		cp = left[0].rv - 1
	}
	var changes []store.Change
	for _, h := range newest {
		changes = append(changes, w.change(h))
	}
	require.NoError(w.t, w.c.Apply(store.Batch{Changes: changes, Checkpoint: goesOn(cp)}))
}

// list replaces the store's content by a list: deletions are found, without the time they happened.
func (w *world) list() {
	newest := map[string]happened{}
	for _, h := range w.pending {
		newest[h.key] = h
	}
	w.pending = nil
	r, err := w.c.Replace()
	require.NoError(w.t, err)
	for _, h := range newest {
		change := w.change(h)
		change.RV = ""
		require.NoError(w.t, r.Apply([]store.Change{change}))
	}
	require.NoError(w.t, r.Commit(goesOn(w.rv)))
}

// mirror is a client that maintains a copy from changes.
type mirror struct {
	t        *rapid.T
	position string
	has      map[string]string // UID by key
	newer    map[string]bool   // left out of a dump, because a change will deliver it
}

// begin makes the initial copy, as the manual describes it.
func (m *mirror) begin(w *world) {
	v, err := w.c.View()
	require.NoError(m.t, err)
	defer v.Close()
	m.position, m.has, m.newer = v.State().RV, map[string]string{}, map[string]bool{}
	for o, err := range v.Objects("", "") {
		require.NoError(m.t, err)
		if object.NewerRV(o.GetResourceVersion(), m.position) {
			m.newer[string(o.GetUID())] = true
		} else {
			m.has[o.Key()] = string(o.GetUID())
		}
	}
}

// apply applies one change. strict means that no change may be delivered twice.
func (m *mirror) apply(c Change, strict bool) error {
	if c.Type == Bookmark {
		m.position = c.ResourceVersion
		return nil
	}
	key, uid := object.Key(c.Namespace, c.Name), string(c.Object.GetUID())
	has, ok := m.has[key]
	switch c.Type {
	case store.Added:
		require.False(m.t, ok, "%s is there already", line(c))
		m.has[key] = uid
	case store.Modified:
		require.True(m.t, has == uid || !ok && m.newer[uid], "%s of another object than %q", line(c), has)
		m.has[key] = uid
	case store.Deleted:
		require.True(m.t, has == uid || !ok && (!strict || m.newer[uid]), "%s of another object than %q", line(c), has)
		delete(m.has, key)
	}
	return nil
}

// Two clients maintain copies: one queries again each time, one follows. Each change must fit the
// copy, and in the end the copies equal the store.
func TestChangesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		src := FromDB(w.db, Options{}).(*dbSource)
		asks, follows := &mirror{t: t}, &mirror{t: t}
		var follow changeStream
		beginFollowing := func() {
			follows.begin(w)
			follow = changeStream{r: src, collection: "configmaps", q: ChangeQuery{Since: follows.position, Objects: true, Follow: true}}
		}
		asks.begin(w)
		beginFollowing()
		ask := func() {
			err := src.Changes(context.Background(), "configmaps", ChangeQuery{Since: asks.position, Objects: true},
				func(c Change) error { return asks.apply(c, false) })
			if errors.Is(err, ErrTooOld) {
				asks.begin(w)
			} else {
				require.NoError(t, err)
			}
		}
		look := func() {
			err := follow.next(context.Background(), func(c Change) error { return follows.apply(c, true) })
			if errors.Is(err, ErrTooOld) {
				beginFollowing()
			} else {
				require.NoError(t, err)
			}
		}
		steps := []func(){w.happen, w.happen, w.happen, func() { w.take(false) }, func() { w.take(true) }, w.list, ask, look}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(steps)-1), 1, 60).Draw(t, "steps") {
			steps[i]()
		}
		w.take(true)
		ask()
		look()
		require.Equal(t, w.known, asks.has)
		require.Equal(t, w.known, follows.has)
		require.Equal(t, fmt.Sprint(w.rv), asks.position)
	})
}
