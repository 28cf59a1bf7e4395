package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/history"
)

const (
	// copyRecords is how many records one transaction copies into a new generation.
	copyRecords = 2000
)

// replacement collects changes in memory and, past the budget, in a new generation beside the
// current one. See [store.Replacement].
type replacement struct {
	c *collection

	// held are not encoded yet: a dictionary is made of some hundred objects, of many programs. The
	// first ones alone often belong to one.
	held      []store.Change
	heldBytes int // of their objects

	pending map[string]write
	bytes   int    // of pending
	highest string // the highest resourceVersion of an applied object

	gen       uint64      // number of the new generation; 0 while all changes are in memory
	state     store.State // totals of the new generation
	committed bool        // visible to readers, but perhaps not durable
	done      bool

	// touched has the keys written to the new generation, with the resourceVersion of the deletion if it is
	// known. It is nil for a first list, which begins a history.
	touched map[string]string
}

func (c *collection) Replace() (store.Replacement, error) {
	if err := c.writable(); err != nil {
		return nil, fmt.Errorf("collection %s: %w", c.id, err)
	}
	c.mu.Lock()
	c.training.listed()
	c.mu.Unlock()
	c.replacing = &replacement{c: c, pending: map[string]write{}}
	return c.replacing, nil
}

func (r *replacement) Apply(changes []store.Change) error {
	err := r.hold(changes)
	if err == nil && r.full() {
		err = r.spill()
	}
	return r.failed(err)
}

// failed returns err with the name of the collection, if it is an error.
func (r *replacement) failed(err error) error {
	if err != nil {
		err = fmt.Errorf("collection %s: replace: %w", r.c.id, err)
	}
	return err
}

// hold adds changes to the held ones and, if these are enough for a dictionary, encodes them. After
// an error the changes are not held.
func (r *replacement) hold(changes []store.Change) error {
	if r.done {
		return store.ErrClosed
	}
	if err := r.c.ended(); err != nil {
		return err
	}
	before, size := len(r.held), r.heldBytes
	for _, ch := range changes {
		if ch.Object != nil {
			r.heldBytes += ch.Object.Size()
		}
	}
	r.held = append(r.held, changes...)
	if r.heldBytes < r.c.db.opts.ReplaceBudget && r.c.untrained() {
		return nil
	}
	err := r.encodeHeld()
	if err != nil {
		clear(r.held[before:])
		r.held, r.heldBytes = r.held[:before], size
	}
	return err
}

// encodeHeld makes the held changes pending.
func (r *replacement) encodeHeld() error {
	writes, err := r.c.encode(r.held, true)
	if err != nil {
		return err
	}
	clear(r.held)
	r.held, r.heldBytes = r.held[:0], 0
	for _, w := range writes {
		r.highest = history.Higher(r.highest, w.rec.RV)
	}
	r.pend(writes)
	return nil
}

// pend makes writes pending, for the first time or, after a failed transaction, again.
func (r *replacement) pend(writes []write) {
	for _, w := range writes {
		if old, ok := r.pending[w.key]; ok {
			r.bytes -= old.bytes()
		}
		r.pending[w.key] = w
		r.bytes += w.bytes()
	}
}

// full reports whether the pending changes have reached the budget.
func (r *replacement) full() bool { return r.bytes >= r.c.db.opts.ReplaceBudget }

// spill writes the pending changes to the new generation. On an error they stay pending.
func (r *replacement) spill() error {
	if r.gen == 0 {
		if err := r.begin(); err != nil {
			return err
		}
	}
	writes := r.takePending()
	var state store.State
	err := r.hidden(func(tx *boltfile.Tx, b *boltfile.Bucket) error {
		gen := b.Bucket(format.GenName(r.gen))
		fillObjects(gen)
		g, err := fileGeneration(r.c, tx, gen, format.GenName(r.gen))
		if err != nil {
			return err
		}
		state = r.state
		return g.writeAll(writes, &state)
	})
	if err != nil {
		r.pend(writes)
		return err
	}
	r.state = state
	if r.touched != nil {
		for _, w := range writes {
			r.touched[w.key] = w.deletion
		}
	}
	return nil
}

// hidden commits a transaction that changes the collection's bucket, but nothing visible to readers.
func (r *replacement) hidden(fn func(tx *boltfile.Tx, b *boltfile.Bucket) error) error {
	return r.c.db.hidden(func(tx *boltfile.Tx) error {
		b, err := r.c.bucket(tx)
		if err != nil {
			return err
		}
		return fn(tx, b)
	})
}

// fillObjects makes full pages of the objects of a list, which comes in key order, instead of leaving
// them half full.
func fillObjects(gen *boltfile.Bucket) {
	if objects := gen.At([][]byte{format.BucketObjects}); objects != nil {
		objects.FillSequentially()
	}
}

func (r *replacement) takePending() []write {
	writes := slices.Collect(maps.Values(r.pending))
	sortWrites(writes)
	r.pending, r.bytes = map[string]write{}, 0
	return writes
}

// begin creates the new generation as a copy of the current one, without its history.
func (r *replacement) begin() error {
	var gen uint64
	var complete definitions
	err := r.c.db.update(func(tx *boltfile.Tx) error {
		b, current, n, err := r.c.current(tx)
		if err != nil {
			return err
		}
		var build building
		if complete, build, err = r.c.readIndexes(current); err != nil {
			return err
		}
		// Indexes that are not complete are built from the start in the new generation, when
		// the replacement has ended.
		r.c.db.indexer.spilling[r.c.id] = true
		build.After = ""
		gen = n + 1
		if err := b.DeleteBucket(format.GenName(gen)); err != nil {
			return err
		}
		return createGeneration(b, r.c.id, gen, complete, build)
	})
	if err != nil {
		return err
	}
	paths := [][][]byte{{format.BucketObjects}}
	for _, name := range slices.Sorted(maps.Keys(complete)) {
		paths = append(paths, [][]byte{format.BucketIndex, []byte(name)})
	}
	for _, path := range paths {
		if err := r.copyBucket(gen, path); err != nil {
			return err
		}
	}
	if r.gen, r.state = gen, r.c.State(); r.state.Synced {
		r.touched = map[string]string{}
	}
	return nil
}

// copyBucket copies one bucket of the current generation into gen, in transactions of bounded size.
func (r *replacement) copyBucket(gen uint64, path [][]byte) error {
	var after []byte
	for more := true; more; {
		err := r.hidden(func(_ *boltfile.Tx, b *boltfile.Bucket) error {
			from, to := b.Bucket(format.GenName(gen-1)).At(path), b.Bucket(format.GenName(gen)).At(path)
			if from == nil || to == nil {
				return r.c.damage("a bucket is missing")
			}
			to.FillSequentially()
			cur := from.Cursor()
			k, v := cur.Seek(after)
			if after != nil && bytes.Equal(k, after) {
				k, v = cur.Next()
			}
			for n := 0; k != nil && n < copyRecords; n++ {
				if err := to.Put(k, v); err != nil {
					return err
				}
				after = append(after[:0:0], k...)
				k, v = cur.Next()
			}
			more = k != nil
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Commit makes the changes and the checkpoint visible together, and durable. If only the sync
// failed, another Commit retries the sync.
func (r *replacement) Commit(cp store.Checkpoint) error { return r.failed(r.commit(cp)) }

func (r *replacement) commit(cp store.Checkpoint) error {
	switch {
	case r.done:
		return store.ErrClosed
	case r.committed:
		return r.finish()
	}
	err := r.encodeHeld()
	if err == nil && (r.full() || r.gen != 0 && len(r.pending) > 0) {
		err = r.spill()
	}
	if err != nil {
		return err
	}
	c := r.c
	stored := c.State()
	goesOn := !c.db.opts.NoHistory && c.Info().Scope() == c.want.Scope() && store.ContinuesHistory(stored, cp)
	head := c.beginHistory(cp, r.highest)
	if r.gen != 0 && goesOn {
		if head, err = r.recordGeneration(stored.RV, cp); err != nil {
			return err
		}
	}
	var writes []write
	if r.gen == 0 {
		writes = r.takePending()
	}
	var state store.State
	err = c.db.update(func(tx *boltfile.Tx) error {
		b, err := c.bucket(tx)
		if err != nil {
			return err
		}
		if r.gen != 0 {
			state = r.state
			err = errors.Join(b.Put(format.KeyGen, format.EncodeNumber(c.id, format.KeyGen, r.gen)), putJSON(b.Bucket(format.GenName(r.gen)), c.id, format.KeyHistory, head))
		} else {
			state, err = r.commitPending(tx, writes, goesOn, cp)
		}
		if err != nil {
			return err
		}
		state.Checkpoint, state.Synced = cp, true
		return errors.Join(putJSON(b, c.id, format.KeyState, state), putJSON(b, c.id, format.KeyInfo, c.want))
	})
	if err != nil {
		r.pend(writes)
		return err
	}
	c.mu.Lock()
	c.state, c.info = state, c.want
	c.mu.Unlock()
	r.committed = true
	return r.finish()
}

// finish makes a visible replacement durable and ends it. After an error the replacement is still
// open.
func (r *replacement) finish() error {
	db := r.c.db.lock()
	err := db.committer.ResyncMeta()
	db.unlock()
	if err != nil {
		return err
	}
	r.end()
	if r.gen != 0 {
		// The new state is durable. If the old generation can't be deleted now, the next open of
		// the file deletes it.
		_ = r.dropGeneration(r.gen - 1)
	}
	return nil
}

// commitPending writes changes that stayed in memory to the current generation, and returns the new
// totals. goesOn is true if the history continues, false if it starts again at cp.
func (r *replacement) commitPending(tx *boltfile.Tx, writes []write, goesOn bool, cp store.Checkpoint) (store.State, error) {
	c := r.c
	b, gen, n, err := c.current(tx)
	if err != nil {
		return store.State{}, err
	}
	state, err := decodeValue[store.State](c.db.path, c.id, format.KeyState, b.Get(format.KeyState))
	if err != nil {
		return state, err
	}
	if state.Count == 0 { // later changes come between the keys
		fillObjects(gen)
	}
	g, err := fileGeneration(c, tx, gen, format.GenName(n))
	if err != nil {
		return state, err
	}
	if goesOn {
		if err := g.openLog(state.RV, cp); err != nil {
			return state, err
		}
	}
	if err := g.writeAll(writes, &state); err != nil {
		return state, err
	}
	if g.recorder == nil {
		return state, restartHistory(gen, c.id, c.beginHistory(cp, r.highest))
	}
	return state, g.closeLog(&store.Gap{})
}

// Abort drops the changes. If Commit has made them visible, they stay.
func (r *replacement) Abort() error {
	if r.done {
		return nil
	}
	defer r.end()
	if r.gen == 0 || r.committed {
		return nil // nothing on disk, or visible already
	}
	return r.dropGeneration(r.gen)
}

func (r *replacement) end() {
	r.done, r.held, r.pending = true, nil, nil
	db := r.c.db.lock()
	defer db.unlock()
	r.c.replacing = nil
	if r.c.ended() == nil { // otherwise the entry may be of another owner's replacement
		db.indexer.spillDone(r.c.id)
	}
}

func (r *replacement) dropGeneration(gen uint64) error {
	return r.failed(r.hidden(func(_ *boltfile.Tx, b *boltfile.Bucket) error { return b.DeleteBucket(format.GenName(gen)) }))
}
