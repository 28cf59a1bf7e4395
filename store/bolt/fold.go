package bolt

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
	// foldBytes, maxCells and foldInterval bound what opening has to replay: bytes of
	// journal, cells in the memtable and time.
	foldBytes    = 24 << 20
	maxCells     = 90_000
	foldInterval = 24 * time.Hour

	// sliceBytes bounds the pages that one transaction of a fold writes. What it takes
	// the place of is free for the next one; in one transaction all of it would be free
	// at once, the file larger by as much, and bbolt's list of free pages, which every
	// commit writes anew, 8 bytes longer for each.
	sliceBytes = 1 << 20
)

// foldDue says that the journal has become as much as opening is to replay.
func (db *DB) foldDue() bool {
	return db.journalBytes >= foldBytes || db.mem.cells() >= maxCells ||
		db.journalBytes > 0 && db.opts.Clock.Since(db.folded) >= foldInterval
}

// fold moves the memtable into the buckets, in key order, and drops the journal.
//
// It goes by slices, each a transaction of its own. The journal is dropped with the
// last one. Before that, file and journal say together what they said before: putting
// the same cells on a bucket again changes nothing. So a fold that did not get to its
// end, for whatever reason, is begun anew.
func (db *DB) fold() error {
	if err := db.pack(); err != nil {
		return fmt.Errorf("fold: %w", err)
	}
	if db.mem.cells() == 0 && db.journalBytes == 0 && db.journalDamage == nil {
		db.folded = db.opts.Clock.Now()
		return nil
	}
	limit := db.opts.sliceBytes
	if len(db.dirty) > 0 && db.mem.cells() > limit/boltfile.PageSize && db.dirtyBytes <= maxJournalBytes {
		if err := db.append(); err != nil {
			return fmt.Errorf("fold: %w", err)
		}
	}
	if len(db.dirty) > 0 {
		limit = math.MaxInt // what is not in the journal must not be in the file by halves
	}
	over := db.mem.snapshot()
	s := slice{over: over, limit: limit}
	for s.rest = true; s.rest; {
		err := db.rewrite(func(tx *boltfile.Tx) (folded bool, err error) {
			if err := s.fold(tx); err != nil {
				return false, err
			}
			meta := tx.Bucket(format.BucketMeta)
			if s.rest {
				return false, meta.Put(format.KeyFolding, binary.BigEndian.AppendUint64(nil, db.journalLast))
			}
			return true, errors.Join(dropJournal(tx), meta.Delete(format.KeyFolding))
		})
		if err == nil && s.rest {
			err = db.opts.foldStep()
		}
		if err != nil {
			return fmt.Errorf("fold: %w", err)
		}
	}
	db.journalBytes = 0
	db.clean()
	db.folded = db.opts.Clock.Now()
	db.considerCompaction()
	return nil
}

// slice is how far a fold is.
type slice struct {
	over  *overlay
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
		if c.deleted {
			err = bucket.Delete(key)
		} else {
			err = bucket.Put(key, c.value)
		}
		if err != nil {
			return err
		}
		s.last = it.Key()
		size += len(key) + len(c.value) + boltfile.PageElement
	}
	s.rest = more
	return nil
}

// inOrder says whether what is put into a bucket comes behind what it has: the history
// grows at its end, so that full pages stay full, and what it forgets lies on fewer.
func inOrder(path [][]byte) bool {
	name := path[len(path)-1]
	return len(path) == 4 && (bytes.Equal(name, format.BucketFeed) || bytes.Equal(name, format.BucketTombs))
}

// dropJournal empties the journal. Its sequence goes on, so that an old entry never
// looks like a new one.
func dropJournal(tx *boltfile.Tx) error {
	old := tx.Bucket(format.BucketJournal)
	if old == nil {
		return nil
	}
	seq := old.Sequence()
	if err := tx.DeleteBucket(format.BucketJournal); err != nil {
		return err
	}
	b, err := tx.CreateBucket(format.BucketJournal)
	if err != nil {
		return err
	}
	return b.SetSequence(seq)
}

// rewrite runs a transaction that changes buckets, and moves the file to the next
// epoch. fn says whether it has put all of the memtable into the file; where it has
// not, it must have changed nothing that a reader of the memtable sees.
func (db *DB) rewrite(fn func(*boltfile.Tx) (folded bool, err error)) error {
	db.mem.foldBegins()
	epoch := db.mem.snapshot().epoch
	var folded bool
	err := db.committer.Commit(func(tx *boltfile.Tx) (err error) {
		if folded, err = fn(tx); err != nil {
			return err
		}
		return tx.Bucket(format.BucketMeta).Put(format.KeyEpoch, binary.BigEndian.AppendUint64(nil, epoch+1))
	})
	if err != nil {
		// Where only the last sync failed, the file of this process has the change all
		// the same. The memtable fits it: it is there twice.
		if actual, readErr := db.readEpoch(); readErr == nil {
			epoch = actual
		}
		db.mem.foldEnds(epoch, false)
		return err
	}
	db.mem.foldEnds(epoch+1, folded)
	return nil
}

func (db *DB) readEpoch() (epoch uint64, err error) {
	err = db.view(func(tx *boltfile.Tx) error { epoch = boltfile.Epoch(tx); return nil })
	return epoch, err
}
