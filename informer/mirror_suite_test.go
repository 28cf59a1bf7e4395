package informer_test

import (
	"errors"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// TestMirrorSuite runs the suite of the stores on mirrors.
func TestMirrorSuite(t *testing.T) {
	storetest.Run(t, func(t storetest.T) storetest.Harness {
		dir, err := os.MkdirTemp("", "mirror")
		require.NoError(t, err)
		h := &mirrorHarness{path: filepath.Join(dir, "db")}
		h.open(t)
		t.Cleanup(func() {
			_ = h.db.Close() // some tests have closed it
			_ = os.RemoveAll(dir)
		})
		return h
	})
}

type mirrorHarness struct {
	path string
	db   *mirrorDB
}

func (h *mirrorHarness) open(t storetest.T) {
	db, err := bolt.Open(h.path, bolt.Options{ViewLimit: time.Hour, HistoryRetention: storetest.HistoryRetention})
	require.NoError(t, err)
	h.db = &mirrorDB{DB: db, opened: map[string]openedMirror{}}
}

func (h *mirrorHarness) DB() store.DB       { return h.db }
func (h *mirrorHarness) Durable() bool      { return true }
func (h *mirrorHarness) Settle(storetest.T) {}

// Reopen also opens the collections again, since the durable store does not have their indexes.
func (h *mirrorHarness) Reopen(t storetest.T) {
	require.NoError(t, h.db.Close())
	was := h.db.opened
	h.open(t)
	for _, o := range was {
		_, err := h.db.Open(o.info, o.indexes...)
		require.NoError(t, err)
	}
}

// mirrorDB opens mirrors. What a mirror does not have, the history, the description and the end of its
// store, is the durable store's.
type mirrorDB struct {
	store.DB
	opened  map[string]openedMirror
	dropped []*memory.DB
}

type openedMirror struct {
	*informer.Mirror
	info    store.Info
	indexes []store.Index
}

func (db *mirrorDB) Open(info store.Info, indexes ...store.Index) (store.Collection, error) {
	c, err := informer.OpenMirror(db.DB, db.opened[info.ID].Mirror, info, indexes...)
	if err != nil {
		return nil, err
	}
	m := c.(*informer.Mirror)
	db.opened[info.ID] = openedMirror{m, info, indexes}
	return mirrorWithHistory{m, db.DB}, nil
}

func (db *mirrorDB) View(id string) (store.View, error) {
	if o, ok := db.opened[id]; ok {
		return mirrorWithHistory{o.Mirror, db.DB}.View()
	}
	return db.DB.View(id)
}

func (db *mirrorDB) Drop(id string) error {
	o, ok := db.opened[id]
	if !ok {
		return db.DB.Drop(id)
	}
	delete(db.opened, id)
	inMemory := informer.MirrorMemory(o.Mirror)
	db.dropped = append(db.dropped, inMemory)
	return errors.Join(db.DB.Drop(id), inMemory.Drop(id))
}

func (db *mirrorDB) Close() error {
	err := db.DB.Close()
	all := db.dropped
	for _, o := range db.opened {
		inMemory := informer.MirrorMemory(o.Mirror)
		all = append(all, inMemory)
	}
	for _, inMemory := range all {
		err = errors.Join(err, inMemory.Close())
	}
	return err
}

type mirrorWithHistory struct {
	*informer.Mirror
	db store.DB
}

func (m mirrorWithHistory) View() (store.View, error) {
	v, err := m.Mirror.View()
	if err != nil {
		return nil, err
	}
	durable, err := m.db.View(m.Info().ID)
	if err != nil {
		v.Close()
		return nil, err
	}
	return viewWithHistory{v, durable}, nil
}

type viewWithHistory struct {
	store.View
	durable store.View
}

func (v viewWithHistory) Horizon() (store.Horizon, error) { return v.durable.Horizon() }

func (v viewWithHistory) Changes(since string) iter.Seq2[store.Event, error] {
	return v.durable.Changes(since)
}

func (v viewWithHistory) Description() (store.Description, error) { return v.durable.Description() }

func (v viewWithHistory) Skips(rv string) (bool, error) { return v.durable.Skips(rv) }

func (v viewWithHistory) Close() {
	v.View.Close()
	v.durable.Close()
}
