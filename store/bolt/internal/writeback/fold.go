package writeback

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

const (
	// FoldBytes is the size of the journal, in bytes, at which a fold begins: it bounds the replay
	// when the file is opened.
	FoldBytes = 24 << 20

	// MaxCells is the number of cells in the memtable at which a fold begins.
	MaxCells = 90_000

	// foldInterval is the age of the journal at which a fold begins.
	foldInterval = 24 * time.Hour

	// sliceBytes bounds the pages that one transaction of a fold writes. The pages that one
	// transaction frees are used by the next one. A single transaction would free all pages at its
	// end: the file would be larger by as much, and so would bbolt's list of free pages, 8 bytes a
	// page, which every commit writes.
	sliceBytes = 1 << 20
)

// foldDue reports whether the journal is so large or old that it must be folded.
func (l *Log) foldDue() bool {
	return l.journal.bytes >= FoldBytes || l.mem.cells() >= MaxCells ||
		l.journal.bytes > 0 && l.opts.Clock.Since(l.folded) >= foldInterval
}

// Fold moves the memtable into the buckets, in key order, and drops the journal.
func (l *Log) Fold() error {
	f, err := l.BeginFold(sliceBytes)
	for err == nil && f.More() {
		err = f.Slice()
	}
	return err
}

// Folding is a fold in progress.
//
// A fold works in slices, each a transaction of its own; the last one drops the journal. Until then,
// file and journal together are the same state as before the fold, because putting the same cells
// into a bucket again changes nothing. So a fold that was interrupted starts over.
type Folding struct {
	log   *Log
	over  *Overlay
	limit int    // roughly the bytes that one slice writes
	last  string // address of the newest cell that was moved; empty for none
	more  bool   // slices remain
}

// BeginFold begins a fold whose slices write about limit bytes. It writes dirty cells to the journal
// if they don't fit into one slice.
func (l *Log) BeginFold(limit int) (*Folding, error) {
	if err := l.opts.Committer.Ready(); err != nil {
		return nil, err
	}
	if err := l.packAll(); err != nil {
		return nil, fmt.Errorf("fold: %w", err)
	}
	if l.mem.cells() == 0 && l.journal.bytes == 0 && l.journal.damage == nil {
		l.folded = l.opts.Clock.Now()
		return &Folding{}, nil
	}
	if len(l.dirty) > 0 && l.mem.cells() > limit/boltfile.PageSize && l.schedule.bytes <= maxJournalBytes {
		if err := l.append(); err != nil {
			return nil, fmt.Errorf("fold: %w", err)
		}
	}
	if len(l.dirty) > 0 {
		limit = math.MaxInt // cells that are not in the journal must reach the file in one transaction
	}
	return &Folding{log: l, over: l.mem.snapshot(), limit: limit, more: true}, nil
}

// More reports whether slices remain.
func (f *Folding) More() bool { return f.more }

// Slice commits the next slice. After an error the fold has ended.
func (f *Folding) Slice() error {
	l := f.log
	err := l.rewrite(func(tx *boltfile.Tx) (folded bool, err error) {
		if err := f.move(tx); err != nil {
			return false, err
		}
		meta := tx.Bucket(format.BucketMeta)
		if f.more {
			return false, meta.Put(format.KeyFolding, binary.BigEndian.AppendUint64(nil, l.journal.last))
		}
		return true, errors.Join(dropJournal(tx), meta.Delete(format.KeyFolding))
	})
	switch {
	case err != nil:
		return fmt.Errorf("fold: %w", err)
	case f.more:
		return nil
	}
	l.journal.bytes = 0
	l.markClean()
	l.folded = l.opts.Clock.Now()
	l.opts.AfterFold()
	return nil
}

// move moves the next cells, at least one of them, into the buckets.
func (f *Folding) move(tx *boltfile.Tx) error {
	var bucket *boltfile.Bucket
	var at string
	size := 0
	it := f.over.tree.Iter()
	more := it.Seek(f.last)
	if more && it.Key() == f.last {
		more = it.Next()
	}
	for ; more; more = it.Next() {
		// ChangedBytes counts the pages changed so far; the cells put into them may add pages.
		if size > 0 && size+tx.ChangedBytes() >= f.limit {
			break
		}
		path, key := format.Locate(it.Key())
		if name := format.Address(path, nil); bucket == nil || name != at {
			if at, bucket = name, tx.At(path); bucket == nil {
				return fmt.Errorf("bucket %q is missing", path)
			}
			if inOrder(path) {
				bucket.FillSequentially()
			}
		}
		c := it.Value()
		var err error
		if c.Deleted {
			err = bucket.Delete(key)
		} else {
			err = bucket.Put(key, c.Value)
		}
		if err != nil {
			return err
		}
		f.last = it.Key()
		size += len(key) + len(c.Value) + boltfile.PageElement
	}
	f.more = more
	return nil
}

// inOrder reports whether a bucket only grows at its end, as the history does: then pages can be
// filled, and trimming the oldest entries changes fewer pages.
func inOrder(path [][]byte) bool {
	name := path[len(path)-1]
	return len(path) == 4 && (bytes.Equal(name, format.BucketFeed) || bytes.Equal(name, format.BucketTombs))
}

// Update commits a transaction whose changes readers see. It folds first, so that the memtable
// never hides a change.
func (l *Log) Update(fn func(*boltfile.Tx) error) error {
	if l.mem.cells() > 0 {
		if err := l.Fold(); err != nil {
			return err
		}
	}
	return l.rewrite(func(tx *boltfile.Tx) (bool, error) { return true, fn(tx) })
}

// Hidden commits a transaction that changes nothing that a reader sees.
func (l *Log) Hidden(fn func(*boltfile.Tx) error) error {
	return l.rewrite(func(tx *boltfile.Tx) (bool, error) { return false, fn(tx) })
}

// rewrite commits a transaction that changes buckets, and moves the file to the next epoch. fn
// reports whether it has moved the whole memtable into the file; otherwise its changes must be
// invisible to readers of the memtable.
func (l *Log) rewrite(fn func(*boltfile.Tx) (folded bool, err error)) error {
	if err := l.opts.Committer.Ready(); err != nil {
		return err
	}
	l.mem.foldBegins()
	epoch := l.mem.snapshot().epoch
	var folded bool
	err := l.opts.Committer.Commit(func(tx *boltfile.Tx) (err error) {
		if folded, err = fn(tx); err != nil {
			return err
		}
		return tx.Bucket(format.BucketMeta).Put(format.KeyEpoch, binary.BigEndian.AppendUint64(nil, epoch+1))
	})
	if err != nil {
		// If only the last fsync failed, this process sees the change nevertheless. The memtable
		// fits that state of the file, because its cells are in both.
		_ = l.opts.Handle.View(func(tx *boltfile.Tx) error { epoch = boltfile.Epoch(tx); return nil })
		l.mem.foldEnds(epoch, false)
		return err
	}
	l.mem.foldEnds(epoch+1, folded)
	return nil
}
