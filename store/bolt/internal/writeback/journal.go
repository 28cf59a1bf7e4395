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

// Flushing is the commit of the cells that were dirty when it began, as one value in the journal. Between
// begin and End, others may Put and read: only Commit takes as long as the disk needs, and it changes nothing
// that they use.
type Flushing struct {
	log    *Log
	over   *Overlay       // has the cells
	dirty  map[string]int // their addresses and bytes
	before schedule       // to which they count again after an error

	// Of the entry in the journal, set by Commit.
	seq  uint64
	size int
}

// take begins the commit of all dirty cells, which count as durable until it fails.
func (l *Log) take() (*Flushing, error) {
	if err := l.packAll(); err != nil {
		return nil, fmt.Errorf("flush: %w", err)
	}
	f := &Flushing{log: l, over: l.mem.snapshot(), dirty: l.dirty, before: l.schedule}
	l.dirty = map[string]int{}
	l.schedule.flushed()
	return f, nil
}

// Commit writes the cells. The caller has called Committer.BeforeCommit, and lets no one else commit meanwhile.
func (f *Flushing) Commit() error { return f.commit(f.log.opts.Committer.CommitBeside) }

func (f *Flushing) commit(in func(func(*boltfile.Tx) error) error) error {
	if len(f.dirty) == 0 {
		return nil
	}
	addrs := slices.Sorted(maps.Keys(f.dirty))
	err := in(func(tx *boltfile.Tx) error {
		b, err := tx.CreateBucketIfNotExists(format.BucketJournal)
		if err != nil {
			return err
		}
		if f.seq, err = b.NextSequence(); err != nil {
			return err
		}
		key := binary.BigEndian.AppendUint64(nil, f.seq)
		value, err := format.EncodeJournalEntry(f.log.opts.Codecs, key, addrs, func(addr string) ([]byte, bool) { c, _ := f.over.Get(addr); return c.Value, c.Deleted })
		if err != nil {
			return err
		}
		f.size = len(value)
		entry, err := b.CreateBucket(key)
		if err != nil {
			return err
		}
		return entry.Put(format.KeyEntry, value)
	})
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// settle notes the result of a commit.
func (l *Log) settle(f *Flushing, err error) error {
	switch {
	case err != nil:
		l.again(f)
	case len(f.dirty) > 0:
		l.journal.bytes, l.journal.last = l.journal.bytes+f.size, f.seq
	}
	return err
}

// again makes the cells of a failed commit dirty again, unless they have changed meanwhile.
func (l *Log) again(f *Flushing) {
	for addr, n := range f.dirty {
		if _, changed := l.dirty[addr]; changed {
			f.before.bytes -= n
		} else {
			l.dirty[addr] = n
		}
	}
	l.schedule.again(f.before)
}

// append writes all dirty cells as one value to the journal.
func (l *Log) append() error {
	f, err := l.take()
	if err != nil {
		return err
	}
	return l.settle(f, f.commit(l.opts.Committer.Commit))
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
