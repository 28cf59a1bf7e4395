package writeback

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// maxJournalBytes bounds one journal value, before compression. If more is dirty, a fold takes the
// place of the flush.
const maxJournalBytes = format.MaxObjectBytes / 2

// JournalEntry returns the value of an entry, nil if there is none.
func JournalEntry(journal *boltfile.Bucket, key []byte) []byte {
	entry := journal.Bucket(key)
	if entry == nil {
		return nil
	}
	return entry.Get(format.KeyEntry)
}

// append writes all dirty cells as one value to the journal.
func (l *Log) append() error {
	if len(l.dirty) == 0 {
		return nil
	}
	if err := l.packAll(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	addrs := slices.Sorted(maps.Keys(l.dirty))
	over := l.mem.snapshot()
	var size int
	var seq uint64
	err := l.opts.Committer.Commit(func(tx *boltfile.Tx) error {
		b, err := tx.CreateBucketIfNotExists(format.BucketJournal)
		if err != nil {
			return err
		}
		if seq, err = b.NextSequence(); err != nil {
			return err
		}
		key := binary.BigEndian.AppendUint64(nil, seq)
		value, err := format.EncodeJournalEntry(l.opts.Codecs, key, addrs, func(addr string) ([]byte, bool) { c, _ := over.Get(addr); return c.Value, c.Deleted })
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
	l.journal.bytes, l.journal.last = l.journal.bytes+size, seq
	l.markClean()
	return nil
}

// markClean records that everything in the memtable is durable.
func (l *Log) markClean() {
	clear(l.dirty)
	l.schedule.flushed()
}

// dropJournal empties the journal. Its sequence numbers continue, so that an old entry never looks
// like a new one.
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
