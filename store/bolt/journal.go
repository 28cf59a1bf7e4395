package bolt

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

const (
	// flushBytes is how much may wait for the flush interval to pass.
	flushBytes = 1 << 20

	// maxJournalBytes bounds one journal value, before compression. More than that
	// is folded at once.
	maxJournalBytes = format.MaxObjectBytes / 2
)

// journalEntry returns the value of an entry, nil where there is none.
func journalEntry(journal *boltfile.Bucket, key []byte) []byte {
	entry := journal.Bucket(key)
	if entry == nil {
		return nil
	}
	return entry.Get(format.KeyEntry)
}

// JournalDamage returns the damage that was met when the journal was replayed,
// nil for none. What follows it in the journal was given up.
func (db *DB) JournalDamage() error {
	if db.journalDamage == nil {
		return nil
	}
	return db.journalDamage
}

// Flush makes what was applied durable: one value in the journal for all
// collections, in one small transaction. It folds where the journal has grown
// large or old.
func (db *DB) Flush() error {
	db.write.Lock()
	defer db.write.Unlock()
	if db.handle.Closed() {
		return store.ErrClosed
	}
	return db.flushLocked()
}

func (db *DB) flushLocked() error {
	if db.dirtyBytes > maxJournalBytes {
		err := db.fold()
		db.noteFlush(err)
		return err
	}
	if db.opts.Clock.Since(db.trimmedAt) >= trimInterval {
		db.trimHistory()
	}
	err := db.append()
	if err == nil {
		err = db.committer.ResyncMeta()
	}
	if err == nil && !db.compacting && db.foldDue() {
		db.trimHistory()
		err = db.fold()
	}
	db.noteFlush(err)
	return err
}

// append adds a journal value of all cells that are not durable.
func (db *DB) append() error {
	if len(db.dirty) == 0 {
		return nil
	}
	if err := db.pack(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	addrs := make([]string, 0, len(db.dirty))
	for addr := range db.dirty {
		addrs = append(addrs, addr)
	}
	slices.Sort(addrs)
	over := db.mem.snapshot()
	var size int
	var seq uint64
	err := db.committer.Commit(func(tx *boltfile.Tx) error {
		b, err := tx.CreateBucketIfNotExists(format.BucketJournal)
		if err != nil {
			return err
		}
		if seq, err = b.NextSequence(); err != nil {
			return err
		}
		key := binary.BigEndian.AppendUint64(nil, seq)
		value, err := format.EncodeJournalEntry(db.codecs, key, addrs, func(addr string) ([]byte, bool) { c, _ := over.tree.Get(addr); return c.value, c.deleted })
		if err != nil {
			return err
		}
		size = len(value)
		entry, err := b.CreateBucket(key)
		if err != nil {
			return err
		}
		return entry.Put(format.KeyEntry, value)
	})
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	db.journalBytes, db.journalLast = db.journalBytes+size, seq
	db.clean()
	return nil
}

// clean notes that everything in the memtable is durable.
func (db *DB) clean() {
	clear(db.dirty)
	db.dirtyBytes, db.dirtySince, db.dirtyChanges = 0, time.Time{}, false
}
