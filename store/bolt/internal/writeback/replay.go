package writeback

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// Replay puts the journal's cells into the memtable when the file is opened. It stops at a corrupt
// entry: the entries before it are a consistent state with an older checkpoint, and the watch sends
// the rest again.
//
// Entries are decoded in one goroutine and merged in another: each is in order of its addresses,
// and merging neighbours, the younger over the older, costs a third of the comparisons of putting
// each cell into the memtable by itself. Merging moves references to cells, not cells.
func (l *Log) Replay() error {
	return l.opts.Handle.View(func(tx *boltfile.Tx) error {
		l.mem.epoch = boltfile.Epoch(tx)
		needed := boltfile.FoldInProgress(tx)
		b := tx.Bucket(format.BucketJournal)
		if b == nil {
			return l.requireJournal(needed)
		}
		entries := make(chan *format.JournalCells, 1)
		merged := make(chan iter.Seq2[string, Cell])
		go func() { merged <- mergeJournal(entries) }()
		err := tx.Read(func() error { return l.decodeEntries(b, entries) }) // Tx.Read turns a panic into an error
		close(entries)
		for addr, c := range <-merged {
			l.mem.tree.Load(addr, c) // in order; nothing else uses the memtable yet
		}
		if err != nil {
			return err
		}
		return l.requireJournal(needed)
	})
}

// requireJournal returns an error unless the journal could be read up to the entry with number
// needed. If a fold is half done, some cells are in the buckets and others only in the journal, so
// that the buckets alone are no consistent state.
func (l *Log) requireJournal(needed uint64) error {
	if l.journal.last >= needed {
		return nil
	}
	reason := fmt.Sprintf("a fold was half done, and of the journal that it needs, up to entry %d, there is no more than up to %d", needed, l.journal.last)
	if l.journal.damage != nil {
		reason += ": " + l.journal.damage.Error()
	}
	return &store.CorruptionError{Path: l.opts.Path, Reason: reason}
}

// decodeEntries sends the cells of each journal entry, in order.
func (l *Log) decodeEntries(b *boltfile.Bucket, entries chan<- *format.JournalCells) error {
	cur, n := b.Cursor(), uint32(0)
	var room format.JournalRoom
	for k, _ := cur.First(); k != nil; k, _ = cur.Next() {
		if len(k) != 8 || binary.BigEndian.Uint64(k) <= l.journal.last {
			l.journal.damage = fmt.Errorf("journal: %w", boltfile.ErrOrder)
			return nil
		}
		v := JournalEntry(b, k)
		entry, err := format.DecodeJournalEntry(l.opts.Codecs, &room, n, k, v)
		if err != nil {
			l.journal.damage = err
			return nil
		}
		l.journal.bytes, l.journal.last = l.journal.bytes+len(v), binary.BigEndian.Uint64(k)
		n++
		entries <- entry
	}
	return nil
}

// mergeJournal merges entries, which arrive from the oldest to the newest. It returns the newest
// cell of each address, in the order of the addresses.
func mergeJournal(entries <-chan *format.JournalCells) iter.Seq2[string, Cell] {
	m := &merger{}
	var runs [][]format.CellRef // each of them much longer than the next
	for e := range entries {
		m.entries = append(m.entries, e)
		runs = append(runs, e.Cells)
		for n := len(runs); n > 1 && len(runs[n-2]) < 2*len(runs[n-1]); n = len(runs) {
			runs = append(runs[:n-2], m.merge(runs[n-2], runs[n-1]))
		}
	}
	var all []format.CellRef
	for i := len(runs) - 1; i >= 0; i-- {
		all = m.merge(runs[i], all)
	}
	return func(yield func(string, Cell) bool) {
		for _, r := range all {
			addr, value, deleted := m.entries[r.Entry].Cell(r)
			if !yield(addr, Cell{Value: value, Deleted: deleted}) {
				return
			}
		}
	}
}

// merger merges the cells of journal entries.
type merger struct{ entries []*format.JournalCells }

// merge merges two ordered runs of cells. If both have an address, the younger run's cell wins.
func (m *merger) merge(older, younger []format.CellRef) []format.CellRef {
	if len(older) == 0 {
		return younger
	}
	merged := make([]format.CellRef, 0, len(older)+len(younger))
	for len(older) > 0 && len(younger) > 0 {
		a, b := older[0], younger[0]
		switch order := bytes.Compare(m.entries[a.Entry].Addr(a), m.entries[b.Entry].Addr(b)); {
		case order < 0:
			merged, older = append(merged, a), older[1:]
		case order > 0:
			merged, younger = append(merged, b), younger[1:]
		default:
			merged, older, younger = append(merged, b), older[1:], younger[1:]
		}
	}
	return append(append(merged, older...), younger...)
}
