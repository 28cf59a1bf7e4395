package bolt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

const (
	// stepRecords and stepBytes bound one step of a build: the objects that it reads and the
	// bytes of their JSON. A step blocks the writer and has all of its objects in memory.
	stepRecords = 500
	stepBytes   = 4 << 20

	// buildRetry is how long a build waits after a step that failed, for example because the
	// disk is full.
	buildRetry = 30 * time.Second
)

// build completes the indexes of a collection.
//
// A step reads the next objects from the file, puts their index entries and stores its
// position, in one transaction. It ignores the memtable. Writers maintain every index,
// complete or not: they delete the entries that an object no longer has, and put the new
// ones. So the memtable's cells turn the entries of the file's objects into the entries of the
// newest objects, whether the step has put the former yet or not; and a crash, which affects
// memtable and journal alike, leaves no entry without its object.
type build struct {
	c    *collection
	wake chan struct{} // has a value once the reason for stepWait is over
	done chan struct{}

	objects int // number of objects read so far
}

// indexer builds the indexes of a database in the background. The write lock guards it.
type indexer struct {
	builds   map[string]*build // by collection
	spilling map[string]bool   // collections whose replacement fills a new generation
}

// busy reports whether a build or a replacement is about to change buckets.
func (x *indexer) busy() bool { return len(x.builds) > 0 || len(x.spilling) > 0 }

// wake wakes the builds that wait.
func (x *indexer) wake() {
	for _, b := range x.builds {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// spillDone notes that the replacement of a collection has ended, committed or not, and wakes the
// builds.
func (x *indexer) spillDone(id string) {
	delete(x.spilling, id)
	x.wake()
}

// startBuild starts a build with the index functions of c if there is work. It ends the previous build
// of the same ID.
func (db locked) startBuild(c *collection, work bool) {
	db.indexer.wake() // the previous build finds at its next step that it is no longer there
	delete(db.indexer.builds, c.id)
	if !work {
		c.settleLocked()
		return
	}
	if c.indexed.Load() == nil {
		indexed := make(chan struct{})
		c.indexed.Store(&indexed)
	}
	b := &build{c: c, wake: make(chan struct{}, 1), done: make(chan struct{})}
	db.indexer.builds[c.id] = b
	db.start(b.run)
}

// Indexed implements [store.Collection]. It does not wait for a step of the build, which calls the program's
// index functions.
func (c *collection) Indexed() <-chan struct{} {
	if indexed := c.indexed.Load(); indexed != nil {
		return *indexed
	}
	return nil
}

// settleLocked ends the wait for the indexes. The database's write lock is held.
func (c *collection) settleLocked() {
	if indexed := c.indexed.Swap(nil); indexed != nil {
		close(*indexed)
	}
}

// run takes steps until there is nothing left to do.
func (b *build) run(ctx context.Context) {
	defer close(b.done)
	db := b.c.db
	start := db.opts.Clock.Now()
	failing := false
	for ctx.Err() == nil {
		built, next, err := b.step(stepRecords)
		if len(built) > 0 {
			db.opts.Logger.Info("index built", "collection", b.c.id, "indexes", built,
				"objects", b.objects, "took", db.opts.Clock.Since(start).Round(time.Millisecond))
		}
		switch {
		case err != nil:
			if !failing {
				db.opts.Logger.Warn("can't build an index; reads of it fail until a retry succeeds", "collection", b.c.id, "error", err)
			}
			_ = sleep.UnlessWoken(ctx, db.opts.Clock, buildRetry, b.wake) // the loop looks at ctx
		case next == stepWait:
			select {
			case <-ctx.Done():
			case <-b.wake:
			}
		case next == stepDone:
			return
		}
		failing = err != nil
	}
}

// next is the action of a build after a step.
type next int

const (
	stepMore next = iota
	stepWait      // until the file may change again
	stepDone
)

// errIdle ends a transaction that has nothing to do.
var errIdle = errors.New("nothing to do")

// step takes the write lock and does a piece of the work: the next objects, at most so many. It returns
// the names of the indexes that it completed.
func (b *build) step(most int) (built []string, after next, err error) {
	db := b.c.db.lock()
	defer db.unlock()
	switch {
	case db.handle.Closed() || db.indexer.builds[b.c.id] != b:
		return nil, stepDone, nil
	case db.indexer.spilling[b.c.id]:
		// A replacement copies the indexes of this generation to the next one.
		return nil, stepWait, nil
	case db.compactor.running:
		return nil, stepWait, nil
	}
	objects := 0
	err = db.log.Hidden(func(tx *boltfile.Tx) error {
		_, gen, n, err := b.c.current(tx)
		if err != nil {
			return err
		}
		if gen.Get(format.KeyBuilding) == nil {
			return errIdle
		}
		built, objects, err = b.c.fileNext(tx, gen, format.GenName(n), most)
		return err
	})
	switch {
	case errors.Is(err, errIdle), b.c.ended() != nil:
		delete(db.indexer.builds, b.c.id)
		b.c.settleLocked()
		return nil, stepDone, nil
	case err != nil:
		b.c.settleLocked() // it may go on for as long as the disk is full
		return nil, stepMore, fmt.Errorf("collection %s: indexes: %w", b.c.id, err)
	}
	b.objects += objects
	return built, stepMore, nil
}

// fileNext puts the index entries of a generation's next objects, at most so many. It returns the
// names of the indexes that are complete now, and how many objects it read.
func (c *collection) fileNext(tx *boltfile.Tx, gen *boltfile.Bucket, name []byte, most int) (built []string, objects int, err error) {
	complete, build, err := c.readIndexes(gen)
	if err != nil {
		return nil, 0, err
	}
	var indexes []store.Index
	for _, x := range c.indexes {
		if build.Indexes.has(x) {
			indexes = append(indexes, x)
		}
	}
	if len(indexes) != len(build.Indexes) {
		return nil, 0, errIdle // the collection was opened with other indexes
	}
	root := gen.Bucket(format.BucketIndex)
	if root == nil {
		return nil, 0, c.damage("a bucket is missing")
	}
	v := &view{db: c.db, tx: tx, over: writeback.NoOverlay(), id: c.id, base: format.GenPath(c.id, name)}
	type row struct {
		key string
		o   *object.Object // nil if it is corrupt, which v.object has reported; it has no index values
	}
	decode := func(k, b []byte) (row, error) { o, _ := v.object(k, b); return row{string(k), o}, nil }
	entries := make([][]string, len(indexes))
	more, size := false, 0
	for r, err := range scan(v, v.path(format.BucketObjects), "", build.After, decode) {
		if err != nil {
			return nil, 0, err
		}
		if more = objects == most || size >= stepBytes; more {
			break
		}
		build.After = r.key
		objects++
		if r.o == nil {
			continue
		}
		size += r.o.Size()
		for i, x := range indexes {
			for _, value := range x.Values(r.o) {
				entries[i] = append(entries[i], string(format.IndexKey(value, r.key)))
			}
		}
	}
	for i, x := range indexes {
		b := root.Bucket([]byte(x.Name))
		if b == nil {
			return nil, 0, c.damage("the bucket of index " + x.Name + " is missing")
		}
		slices.Sort(entries[i])
		for _, e := range entries[i] {
			if err := b.Put([]byte(e), nil); err != nil {
				return nil, 0, err
			}
		}
	}
	if more {
		return nil, objects, putBuilding(gen, c.id, build)
	}
	maps.Copy(complete, build.Indexes)
	return slices.Sorted(maps.Keys(build.Indexes)), objects, errors.Join(putJSON(gen, c.id, format.KeyIndexes, complete), gen.Delete(format.KeyBuilding))
}

func (c *collection) damage(reason string) error {
	return &store.CorruptionError{Path: c.db.path, Collection: c.id, Reason: reason}
}
