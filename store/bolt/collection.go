package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/history"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// collection is one open collection. See [store.Collection].
type collection struct {
	db    *DB
	id    string
	owner *store.Owner

	packFunc  func(key, value []byte) ([]byte, error) // the method value of pack, allocated once
	replacing *replacement                            // that has not ended, nil for none; only the writer uses it
	indexed   atomic.Pointer[chan struct{}]           // see Indexed; changed under the database's write lock

	// mu guards the fields below. Only the writer changes them, so it reads them without mu. Builds
	// read indexes with the database's write lock held, with which Reopen changes them.
	mu       sync.Mutex
	info     store.Info    // of the stored objects
	want     store.Info    // the argument of Open; its scope may differ from info's until a replacement commits
	indexes  []store.Index // ordered by name
	history  *store.Index  // of the attributes that the history records, nil for none
	state    store.State
	dictID   uint32 // the newest of dictIDs; 0 while no dictionary can be used
	dictIDs  []uint32
	dict     []byte
	training training
}

var _ store.Collection = (*collection)(nil)

// Open returns the collection info.ID. See [store.DB].
func (db *DB) Open(info store.Info, indexes ...store.Index) (store.Collection, error) {
	if info.ID == "" {
		return nil, errors.New("collection without an ID")
	}
	if db.handle.Closed() {
		return nil, fmt.Errorf("collection %s: open: %w", info.ID, store.ErrClosed)
	}
	owner, err := db.owners.Take(info, db.path)
	if err != nil {
		return nil, err
	}
	c := &collection{db: db, id: info.ID, owner: owner}
	c.packFunc = c.pack
	if err := c.Reopen(info, indexes...); err != nil {
		db.owners.End(owner, store.ErrClosed)
		return nil, err
	}
	return c, nil
}

// Owner returns the owner of a collection, nil if it is not open.
func (db *DB) Owner(id string) *store.Owner { return db.owners.Get(id) }

// Reopen reads the stored collection, or creates it, for the first time or again. See [store.Collection].
func (c *collection) Reopen(info store.Info, all ...store.Index) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("collection %s: open: %w", c.id, err)
		}
	}()
	indexes, history, err := store.SortIndexes(all)
	if err == nil && info.ID != c.id {
		err = fmt.Errorf("it can't be opened again as %s", info.ID)
	}
	if err != nil {
		return err
	}
	next := &collection{db: c.db, id: c.id, owner: c.owner, info: info, want: info, indexes: indexes, history: history}
	db := c.db.lock()
	defer db.unlock()
	if err := c.writable(); err != nil {
		return err
	}
	db.indexes.Store(c.id, indexes) // before a view sees one of them
	db.rekeyIfDue()
	work := false
	if !next.loadAsIs(db) {
		err := db.update(func(tx *boltfile.Tx) (err error) { work, err = next.load(tx); return err })
		if err == nil {
			err = db.committer.ResyncMeta()
		}
		if err != nil {
			db.indexes.Store(c.id, c.indexes) // the former ones
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.info, c.want, c.indexes, c.history, c.state = next.info, info, indexes, history, next.state
	c.dictID, c.dictIDs, c.dict = next.dictID, next.dictIDs, next.dict
	db.owners.Update(c.owner, info)
	db.startBuild(c, work)
	return nil
}

// ended returns why the collection can't be used any more, nil if it can.
func (c *collection) ended() error {
	if c.db.handle.Closed() {
		return store.ErrClosed
	}
	return c.owner.Err()
}

// writable returns an error if the collection takes no changes.
func (c *collection) writable() error {
	if err := c.ended(); err != nil {
		return err
	}
	if c.replacing != nil {
		return store.ErrReplacing
	}
	return nil
}

// Close gives the collection up. See [store.Collection].
func (c *collection) Close() (err error) {
	if c.replacing != nil && c.ended() == nil {
		err = c.replacing.Abort()
	}
	db := c.db.lock()
	defer db.unlock()
	if c.owner.Err() == nil {
		db.startBuild(c, false) // a build goes on when the collection is open again
		db.indexes.Delete(c.id)
		db.owners.End(c.owner, store.ErrClosed)
	}
	return err
}

// loadAsIs reads the stored collection if opening it changes nothing, as after a restart: then no
// write transaction is needed, and no fold. It reports whether it has read the collection; on any
// error it returns false, and load fails with the same error.
func (c *collection) loadAsIs(db locked) (ok bool) {
	v, err := db.baseView(c.id)
	if err != nil {
		return false
	}
	defer v.Close()
	err = v.read(func() error {
		gen := v.bucket(v.base)
		complete, err := decodeValue[definitions](c.db.path, c.id, format.KeyIndexes, gen.Get(format.KeyIndexes))
		if err != nil || v.info != c.want || !maps.Equal(complete, definitionsOf(c.indexes)) ||
			gen.Get(format.KeyBuilding) != nil || gen.Bucket(format.BucketDropped) != nil {
			return err
		}
		if err := c.loadDicts(v.tx, v.bucket(format.CollectionPath(c.id))); err != nil {
			return err
		}
		c.state, ok = v.state, true
		return nil
	})
	return ok && err == nil
}

// loadDicts reads the dictionaries that the collection has.
func (c *collection) loadDicts(tx *boltfile.Tx, b *boltfile.Bucket) (err error) {
	if c.dictIDs, err = format.DecodeDictIDs(c.id, b.Get(format.KeyDict)); err != nil {
		return corruptValue(c.db.path, c.id, format.KeyDict, err)
	}
	if n := len(c.dictIDs); n > 0 {
		c.dictID = c.dictIDs[n-1]
		c.dict = dictLookup(tx)(c.dictID)
		if len(c.dict) == 0 {
			c.dictID, c.dict = 0, nil // a new one will be trained; records of the lost one are corrupt
		}
	}
	return nil
}

// load reads the stored collection, or creates it, and replaces its indexes by the ones that the
// collection was opened with. It reports whether a build has work to do.
func (c *collection) load(tx *boltfile.Tx) (work bool, err error) {
	all := tx.Bucket(format.BucketCollections)
	b, stored, current := all.Bucket([]byte(c.id)), store.Info{}, uint64(0)
	if b == nil {
		b, err = all.CreateBucket([]byte(c.id))
	} else if stored, err = decodeValue[store.Info](c.db.path, c.id, format.KeyInfo, b.Get(format.KeyInfo)); err == nil {
		if c.state, err = decodeValue[store.State](c.db.path, c.id, format.KeyState, b.Get(format.KeyState)); err == nil {
			current, err = readGen(c.db.path, c.id, b)
		}
	}
	switch {
	case err != nil:
	case current != 0 && stored.Scope() == c.want.Scope():
		err = putJSON(b, c.id, format.KeyInfo, c.want)
	case c.state.Synced:
		c.info = stored
	default: // it is new, or its objects are of an interrupted first list under another scope
		c.state = store.State{}
		current++
		err = errors.Join(
			b.DeleteBucket(format.GenName(current-1)), createGeneration(b, c.id, current, definitionsOf(c.indexes), building{}),
			b.Put(format.KeyGen, format.EncodeNumber(c.id, format.KeyGen, current)),
			putJSON(b, c.id, format.KeyInfo, c.want), putJSON(b, c.id, format.KeyState, c.state),
		)
	}
	if err == nil {
		err = c.loadDicts(tx, b)
	}
	if err != nil {
		return false, err
	}
	gen := b.Bucket(format.GenName(current))
	if gen == nil {
		return false, c.damage("the current generation is missing")
	}
	return c.syncIndexes(gen)
}

// Info returns the identity of the stored objects. It may differ from the Info that the collection
// was opened with until a replacement commits.
func (c *collection) Info() store.Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info
}

func (c *collection) State() store.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *collection) View() (store.View, error) {
	if err := c.ended(); err != nil {
		return nil, fmt.Errorf("collection %s: view: %w", c.id, err)
	}
	return c.db.View(c.id)
}

// Describe puts the description into the memtable, unless the stored one has the same bytes.
func (c *collection) Describe(d store.Description) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("collection %s: describe: %w", c.id, err)
		}
	}()
	b, err := format.EncodeJSON(c.id, format.KeyDescription, d)
	if err != nil {
		return err
	}
	db := c.db.lock()
	defer db.unlock()
	if err := c.ended(); err != nil {
		return err
	}
	v, err := db.baseView(c.id)
	if err != nil {
		return err
	}
	same := false
	err = v.read(func() error { same = bytes.Equal(v.rawDescription(), b); return nil })
	v.Close()
	if err != nil || same {
		return err
	}
	if err := db.log.Reserve(); err != nil {
		return err
	}
	addr := format.Address(format.CollectionPath(c.id), format.KeyDescription)
	db.log.Put(map[string]writeback.Cell{addr: {Value: b}}, true)
	return nil
}

// rawDescription returns the stored bytes of the description, nil if there are none.
func (v *view) rawDescription() []byte {
	return v.lookup(format.CollectionPath(v.id), format.KeyDescription)
}

// Description returns the description of the collection. A corrupt one counts as none, because it
// can be fetched again.
func (v *view) Description() (d store.Description, err error) {
	err = v.read(func() error {
		if format.DecodeJSON(v.id, format.KeyDescription, v.rawDescription(), &d) != nil {
			d = store.Description{}
		}
		return nil
	})
	return d, err
}

// bucket returns the collection's bucket in tx. It fails once the collection was closed.
func (c *collection) bucket(tx *boltfile.Tx) (*boltfile.Bucket, error) {
	if err := c.ended(); err != nil {
		return nil, err
	}
	b := tx.At(format.CollectionPath(c.id))
	if b == nil {
		return nil, store.ErrNoCollection
	}
	return b, nil
}

// current returns the collection's bucket in tx, and its current generation with its number.
func (c *collection) current(tx *boltfile.Tx) (b, gen *boltfile.Bucket, n uint64, err error) {
	if b, err = c.bucket(tx); err != nil {
		return nil, nil, 0, err
	}
	if n, err = readGen(c.db.path, c.id, b); err != nil {
		return nil, nil, 0, err
	}
	if gen = b.Bucket(format.GenName(n)); gen == nil {
		return nil, nil, 0, c.damage("the current generation is missing")
	}
	return b, gen, n, nil
}

// dropLeftovers deletes the generations that a crash left unfinished.
func (db locked) dropLeftovers() error {
	left := map[string][][]byte{} // by collection
	err := db.handle.View(func(tx *boltfile.Tx) error {
		return eachCollection(tx, func(id string, b *boltfile.Bucket) error {
			names, err := leftovers(db.path, id, b)
			if len(names) > 0 {
				left[id] = names
			}
			return err
		})
	})
	if err != nil || len(left) == 0 {
		return err
	}
	return db.log.Hidden(func(tx *boltfile.Tx) error {
		for id, names := range left {
			for _, name := range names {
				if err := tx.At(format.CollectionPath(id)).DeleteBucket(name); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func createGeneration(b *boltfile.Bucket, id string, n uint64, complete definitions, build building) error {
	gen, err := b.CreateBucket(format.GenName(n))
	if err != nil {
		return err
	}
	if _, err := gen.CreateBucket(format.BucketObjects); err != nil {
		return err
	}
	if err := createHistory(gen, id, history.Head{}); err != nil {
		return err
	}
	root, err := gen.CreateBucket(format.BucketIndex)
	if err != nil {
		return err
	}
	for _, indexes := range []definitions{complete, build.Indexes} {
		for name := range indexes {
			if _, err := root.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
	}
	return errors.Join(putJSON(gen, id, format.KeyIndexes, complete), putBuilding(gen, id, build))
}
