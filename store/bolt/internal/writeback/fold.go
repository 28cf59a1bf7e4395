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
	// FoldBytes is the length of the journal at which a fold begins: it bounds what opening
	// has to replay.
	FoldBytes = 24 << 20

	// MaxCells is the number of cells in the memtable at which a fold begins.
	MaxCells = 90_000

	// foldInterval is the age of the journal at which a fold begins.
	foldInterval = 24 * time.Hour

	// SliceBytes bounds the pages that one transaction of a fold writes. The pages that it
	// replaces are free for the next one; in one transaction all of them would become free
	// at once, the file would be larger by as much, and bbolt's list of free pages, which
	// every commit writes, 8 bytes longer for each.
	SliceBytes = 1 << 20
)

// foldDue reports whether the journal has become as much as opening is to replay.
func (l *Log) foldDue() bool {
	return l.journal.bytes >= FoldBytes || l.mem.cells() >= MaxCells ||
		l.journal.bytes > 0 && l.opts.Clock.Since(l.folded) >= foldInterval
}

// Fold moves the memtable into the buckets, in key order, and drops the journal.
//
// It goes by slices, each a transaction of its own. The journal is dropped with the
// last one. Before that, file and journal are together the same state as before the fold:
// putting the same cells on a bucket again changes nothing. So a fold that did not get to
// its end, for whatever reason, starts over.
func (l *Log) Fold() error {
	if err := l.pack(); err != nil {
		return fmt.Errorf("fold: %w", err)
	}
	if l.mem.cells() == 0 && l.journal.bytes == 0 && l.journal.damage == nil {
		l.folded = l.opts.Clock.Now()
		return nil
	}
	limit := l.opts.SliceBytes
	if len(l.dirty) > 0 && l.mem.cells() > limit/boltfile.PageSize && l.schedule.bytes <= maxJournalBytes {
		if err := l.append(); err != nil {
			return fmt.Errorf("fold: %w", err)
		}
	}
	if len(l.dirty) > 0 {
		limit = math.MaxInt // what is not in the journal must not be in the file by halves
	}
	over := l.mem.snapshot()
	s := slice{over: over, limit: limit}
	for s.rest = true; s.rest; {
		err := l.rewrite(func(tx *boltfile.Tx) (folded bool, err error) {
			if err := s.fold(tx); err != nil {
				return false, err
			}
			meta := tx.Bucket(format.BucketMeta)
			if s.rest {
				return false, meta.Put(format.KeyFolding, binary.BigEndian.AppendUint64(nil, l.journal.last))
			}
			return true, errors.Join(dropJournal(tx), meta.Delete(format.KeyFolding))
		})
		if err == nil && s.rest {
			err = l.opts.FoldStep()
		}
		if err != nil {
			return fmt.Errorf("fold: %w", err)
		}
	}
	l.journal.bytes = 0
	l.markClean()
	l.folded = l.opts.Clock.Now()
	l.opts.AfterFold()
	return nil
}

// slice is the progress of a fold.
type slice struct {
	over  *Overlay
	limit int    // of what a transaction writes, about, in bytes
	last  string // address of the newest cell that was moved; empty for none
	rest  bool   // there are more
}

// fold moves the next cells, at least one of them, into the buckets.
func (s *slice) fold(tx *boltfile.Tx) error {
	var bucket *boltfile.Bucket
	var at string
	size := 0
	it := s.over.tree.Iter()
	more := it.Seek(s.last)
	if more && it.Key() == s.last {
		more = it.Next()
	}
	for ; more; more = it.Next() {
		// A node is a page that is changed. What is put into it may need others.
		if size > 0 && size+tx.ChangedBytes() >= s.limit {
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
		s.last = it.Key()
		size += len(key) + len(c.Value) + boltfile.PageElement
	}
	s.rest = more
	return nil
}

// inOrder reports whether what is put into a bucket comes after what it has: the history
// grows at its end, so that full pages stay full, and what it forgets lies on fewer.
func inOrder(path [][]byte) bool {
	name := path[len(path)-1]
	return len(path) == 4 && (bytes.Equal(name, format.BucketFeed) || bytes.Equal(name, format.BucketTombs))
}

// Update commits a transaction that changes what readers see. It folds before that, so
// that the memtable never hides the change.
func (l *Log) Update(fn func(*boltfile.Tx) error) error {
	if l.mem.size() > 0 {
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

// rewrite commits a transaction that changes buckets, and moves the file to the next
// epoch. fn reports whether it has put all of the memtable into the file; if it has
// not, it must have changed nothing that a reader of the memtable sees.
func (l *Log) rewrite(fn func(*boltfile.Tx) (folded bool, err error)) error {
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
		// After the failure of the last fsync alone, this process sees the change all the
		// same. The memtable fits the file: its cells are in both.
		if actual, readErr := l.readEpoch(); readErr == nil {
			epoch = actual
		}
		l.mem.foldEnds(epoch, false)
		return err
	}
	l.mem.foldEnds(epoch+1, folded)
	return nil
}

func (l *Log) readEpoch() (epoch uint64, err error) {
	err = l.opts.Handle.View(func(tx *boltfile.Tx) error { epoch = boltfile.Epoch(tx); return nil })
	return epoch, err
}
