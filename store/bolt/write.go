package bolt

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/history"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// write is one change, ready for a transaction.
type write struct {
	key      string
	values   [][]string // the object's values in each index, parallel to collection.indexes
	delete   bool
	deletion string         // resourceVersion of the deletion, if it is known
	object   *object.Object // nil for a deletion, and in a replacement, whose writes wait for long
	rec      format.Record
}

func (w write) bytes() int {
	n := len(w.key) + len(w.rec.Payload)
	for _, values := range w.values {
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

func (c *collection) Apply(batch store.Batch) error {
	err := c.writable()
	if err == nil && c.info.Scope() != c.want.Scope() {
		err = store.ErrScope
	}
	if err != nil {
		return fmt.Errorf("collection %s: %w", c.id, err)
	}
	if len(batch.Changes) == 0 && batch.Checkpoint == (store.Checkpoint{}) {
		return nil
	}
	writes, err := c.encode(batch.Changes, false)
	if err != nil {
		return fmt.Errorf("collection %s: %w", c.id, err)
	}
	sortWrites(writes)
	state, err := c.applyWrites(writes, batch)
	if err != nil {
		return fmt.Errorf("collection %s: apply: %w", c.id, err)
	}
	c.mu.Lock()
	c.state = state
	c.mu.Unlock()
	return nil
}

// applyWrites puts sorted writes and a checkpoint into the memtable, under the write lock, and
// returns the new state.
func (c *collection) applyWrites(writes []write, batch store.Batch) (state store.State, err error) {
	db := c.db.lockToPut()
	defer db.unlock()
	defer func() {
		if err != nil {
			db.closeViews()
		}
	}()
	if err := c.ended(); err != nil {
		return state, err
	}
	if err := db.log.Reserve(); err != nil {
		return state, err
	}
	base, err := db.writerView(c.id)
	if err != nil {
		return state, err
	}
	e := &edit{base: base, cells: make(map[string]writeback.Cell, len(writes)+1)}
	if err := base.tx.Read(func() error { return c.write(e, writes, batch, &state) }); err != nil {
		return state, err
	}
	db.log.Put(e.cells, len(writes) > 0)
	raw := e.cells[format.Address(format.CollectionPath(c.id), format.KeyState)].Value
	keepDecoded(base, format.KeyState, raw, state)
	base.state = state
	base.puts++
	return state, nil
}

// write adds the sorted writes of a batch and its checkpoint to an edit, and sets the state after it.
func (c *collection) write(e *edit, writes []write, batch store.Batch, state *store.State) error {
	*state = e.base.state
	known := state.RV
	if batch.Checkpoint != (store.Checkpoint{}) {
		state.Checkpoint = batch.Checkpoint
	}
	g := memGeneration(c, e)
	if l, ok := batch.Read.(*lookup); ok && l.fits(e.base) {
		g.read = l.found
	}
	if err := g.openLog(known, state.Checkpoint); err != nil {
		return err
	}
	if err := g.writeAll(writes, state); err != nil {
		return err
	}
	if err := g.closeLog(batch.Gap); err != nil {
		return err
	}
	return putJSON(e.table(format.CollectionPath(c.id)...), c.id, format.KeyState, *state)
}

// encode returns the writes of changes. It runs outside of any transaction. It compresses the
// records if pack is true; otherwise the flush does.
func (c *collection) encode(changes []store.Change, pack bool) ([]write, error) {
	if err := c.train(changes); err != nil {
		return nil, err
	}
	writes := make([]write, 0, len(changes))
	for _, ch := range changes {
		w := write{key: ch.Key, delete: ch.Object == nil, deletion: ch.RV}
		if !pack {
			w.object = ch.Object
		}
		if ch.Key == "" {
			return nil, fmt.Errorf("change without a key")
		}
		if ch.Object != nil {
			var err error
			if w.rec, err = format.NewRecord(ch.Object); err != nil {
				return nil, fmt.Errorf("%s: %w", ch.Key, err)
			}
			if pack && w.rec.Compressible() {
				if err := c.db.codecs.Compress(&w.rec, c.dictID, c.dict); err != nil {
					return nil, fmt.Errorf("compress %s: %w", ch.Key, err)
				}
				c.training.encoded(ch.Object.Size(), len(w.rec.Payload))
			}
			for _, x := range c.indexes {
				w.values = append(w.values, x.Values(ch.Object))
			}
		}
		writes = append(writes, w)
	}
	return writes, nil
}

func sortWrites(writes []write) {
	slices.SortStableFunc(writes, func(a, b write) int { return cmp.Compare(a.key, b.key) })
}

// generation holds the tables of one generation, for writes.
type generation struct {
	c       *collection
	view    *view // reads the tables; for memGeneration it does not see the writes
	root    table // the generation itself
	objects table
	read    map[string]*found // the values of keys in objects before a write, as far as known; nil for none
	indexes []table           // parallel to c.indexes
	lost    bool              // the totals are unknown: they include a corrupt record
	history feedTable

	recorder   *history.Recorder // nil if the writes are not recorded
	attributes *store.Index      // that are recorded with them, nil for none
	head       history.Head      // the stored head of the history
	changes    []history.Change  // for the recorder
}

// memGeneration returns the current generation, for writes to the memtable.
func memGeneration(c *collection, e *edit) *generation {
	g := &generation{
		c: c, view: e.base, root: e.table(e.base.base...), objects: e.table(e.base.path(format.BucketObjects)...),
		history: feedTable{e.table(e.base.path(format.BucketFeed)...), e.table(e.base.path(format.BucketTombs)...)},
	}
	for _, x := range c.indexes {
		g.indexes = append(g.indexes, e.table(e.base.path(format.BucketIndex, []byte(x.Name))...))
	}
	return g
}

// fileGeneration returns a generation, for writes in a transaction on the file. The memtable must
// have no cells of it.
func fileGeneration(c *collection, tx *boltfile.Tx, gen *boltfile.Bucket, name []byte) (*generation, error) {
	missing := c.damage("a bucket is missing")
	if gen == nil {
		return nil, missing
	}
	objects, root, feed, tombs := gen.Bucket(format.BucketObjects), gen.Bucket(format.BucketIndex), gen.Bucket(format.BucketFeed), gen.Bucket(format.BucketTombs)
	if objects == nil || root == nil || feed == nil || tombs == nil {
		return nil, missing
	}
	g := &generation{
		c: c, view: &view{db: c.db, tx: tx, over: writeback.NoOverlay(), id: c.id, base: format.GenPath(c.id, name)}, root: gen, objects: objects,
		history: feedTable{feed, tombs},
	}
	for _, x := range c.indexes {
		b := root.Bucket([]byte(x.Name))
		if b == nil {
			return nil, missing
		}
		g.indexes = append(g.indexes, b)
	}
	return g, nil
}

// writeAll applies sorted writes and updates the totals in state.
func (g *generation) writeAll(writes []write, state *store.State) error {
	for _, w := range writes {
		if err := g.write(w, state); err != nil {
			return fmt.Errorf("%s: %w", w.key, err)
		}
	}
	if !g.lost {
		return nil
	}
	var err error
	if state.Count, state.Bytes, err = g.recount(writes); err != nil {
		return fmt.Errorf("count again: %w", err)
	}
	g.lost = false
	return nil
}

func (g *generation) write(w write, state *store.State) error {
	key := []byte(w.key)
	was := g.read[w.key]
	if was == nil {
		was = find(g.objects.Get(key), key)
	}
	stored, old, oldObject, err := was.stored, was.record, was.object, was.err
	if err != nil {
		g.lost = true
	} else if stored != nil && oldObject == nil && (len(g.indexes) > 0 || g.attributes != nil) {
		oldObject, err = g.view.decode(w.key, old)
	}
	corrupt := err != nil
	if stored == nil && w.delete {
		return nil
	}
	if stored != nil {
		state.Count--
		state.Bytes -= int64(old.Size)
	}
	for i, x := range g.c.indexes {
		if err := g.reindex(i, x, w, oldObject, corrupt); err != nil {
			return err
		}
	}
	if g.recorder != nil {
		if err := g.note(w, stored, old, oldObject, corrupt); err != nil {
			return err
		}
	}
	if w.delete {
		return g.objects.Delete(key)
	}
	w.rec.FirstRV = w.rec.RV
	if stored != nil && !corrupt && old.UID == w.rec.UID && old.FirstRV != "" {
		w.rec.FirstRV = old.FirstRV
	}
	state.Count++
	state.Bytes += int64(w.rec.Size)
	if mem, ok := g.objects.(*editTable); ok && w.rec.Compressible() {
		return mem.putToPack(key, w.rec.Encode(key), g.c)
	}
	return g.objects.Put(key, w.rec.Encode(key))
}

// recount returns the totals after writes: the number of objects, and the bytes of their JSON.
func (g *generation) recount(writes []write) (count, total int64, err error) {
	written := make(map[string]bool, len(writes))
	for _, w := range writes {
		written[w.key] = true
		if !w.delete {
			count++
			total += int64(w.rec.Size)
		}
	}
	err = g.view.all(g.view.path(format.BucketObjects), func(k, b []byte) {
		if written[string(k)] {
			return
		}
		count++
		if r, err := format.DecodeRecord(k, b); err == nil { // a corrupt record counts as 0 bytes from now on
			total += int64(r.Size)
		}
	})
	return count, total, err
}

// reindex moves key from the old object's values to the new one's in one index.
func (g *generation) reindex(i int, x store.Index, w write, old *object.Object, corrupt bool) error {
	b := g.indexes[i]
	var was, is []string
	if old != nil {
		was = x.Values(old)
	}
	if !w.delete {
		is = w.values[i]
	}
	if corrupt {
		// The old values can't be read from the corrupt record: search the index for the key.
		if err := g.dropIndexed(b, x.Name, w.key); err != nil {
			return err
		}
	}
	for _, v := range was {
		if _, still := slices.BinarySearch(is, v); !still {
			if err := b.Delete(format.IndexKey(v, w.key)); err != nil {
				return err
			}
		}
	}
	for _, v := range is {
		if _, already := slices.BinarySearch(was, v); !already {
			if err := b.Put(format.IndexKey(v, w.key), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropIndexed deletes the entries of a key from an index. It scans the whole index.
func (g *generation) dropIndexed(t table, name, key string) error {
	suffix := append([]byte{0}, key...)
	var found [][]byte
	err := g.view.all(g.view.path(format.BucketIndex, []byte(name)), func(k, _ []byte) {
		if bytes.HasSuffix(k, suffix) {
			found = append(found, bytes.Clone(k))
		}
	})
	for _, k := range found {
		err = errors.Join(err, t.Delete(k))
	}
	return err
}
