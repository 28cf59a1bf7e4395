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
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
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
	h.db = &mirrorDB{DB: db, opened: map[string]*openedMirror{}}
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
		c, err := h.db.Open(o.info, o.indexes...)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}

// mirrorDB opens mirrors. What a mirror does not have, the history, the description and the end of its
// store, is the durable store's.
type mirrorDB struct {
	store.DB
	opened map[string]*openedMirror // the newest opening of each collection
}

type openedMirror struct {
	*informer.Mirror
	db      *mirrorDB
	info    store.Info
	indexes []store.Index
}

func (db *mirrorDB) Open(info store.Info, indexes ...store.Index) (store.Collection, error) {
	c, err := informer.OpenMirror(db.DB, info, indexes...)
	if err != nil {
		return nil, err
	}
	m := &openedMirror{c.(*informer.Mirror), db, info, indexes}
	db.opened[info.ID] = m
	return m, nil
}

// View opens a mirror for the view if there is none.
func (db *mirrorDB) View(id string) (store.View, error) {
	m, known := db.opened[id]
	if !known {
		return db.DB.View(id)
	}
	if v, err := m.View(); !errors.Is(err, store.ErrClosed) {
		return v, err
	}
	c, err := db.Open(m.info, m.indexes...)
	if err != nil {
		return nil, err
	}
	v, err := c.View()
	return v, errors.Join(err, c.Close())
}

func (db *mirrorDB) Drop(id string) error {
	err := db.DB.Drop(id)
	if err == nil {
		delete(db.opened, id)
	}
	return err
}

func (m *openedMirror) Reopen(info store.Info, indexes ...store.Index) error {
	err := m.Mirror.Reopen(info, indexes...)
	if err == nil {
		m.info, m.indexes = info, indexes
	}
	return err
}

func (m *openedMirror) View() (store.View, error) {
	durable, err := informer.MirrorDurable(m.Mirror).View()
	if err != nil {
		return nil, err
	}
	v, err := m.Mirror.View()
	if err != nil {
		durable.Close()
		return nil, err
	}
	return viewWithHistory{v, durable}, nil
}

func (m *openedMirror) Header(key string) (store.Header, error) {
	v, err := m.View()
	if err != nil {
		return store.Header{}, err
	}
	defer v.Close()
	return v.Header(key)
}

func (m *openedMirror) Lookup() store.Lookup { return m }

func (m *openedMirror) Get(key string) (*object.Object, error) {
	v, err := m.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.Get(key)
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
