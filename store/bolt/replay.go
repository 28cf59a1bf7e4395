package bolt

import (
	"fmt"

	"github.com/snapcache/snapcache/store"
)

// replay puts what the journal holds into the memtable, when the file is opened.
// At a damaged entry it stops: what comes before is a consistent state, with an
// older checkpoint, and the watch sends the rest again.
//
// Entries are decoded in one goroutine and merged in another: each is in order of
// its addresses, and merging neighbours, the younger over the older, costs a third
// of the comparisons that putting each cell into the memtable by itself does.
func (db *DB) replay() error {
	return db.view(func(tx *fileTx) error {
		db.mem.epoch = fileEpoch(tx)
		b := tx.Bucket(bucketJournal)
		if b == nil {
			return nil
		}
		entries := make(chan []journalCell, 1)
		merged := make(chan []journalCell)
		go func() { merged <- mergeJournal(entries) }()
		err := db.decodeEntries(b, entries)
		close(entries)
		db.mem.load(<-merged)
		return err
	})
}

// decodeEntries sends the cells of one journal entry after the other.
func (db *DB) decodeEntries(b *fileBucket, entries chan<- []journalCell) (err error) {
	defer recoverCorruption(db.path, &err) // the other goroutine has to be told of the end
	damaged := func(err error) {
		db.journalDamage = &store.CorruptionError{Path: db.path, Reason: err.Error()}
	}
	var last []byte
	cur := b.Cursor()
	for k, _ := cur.First(); k != nil; k, _ = cur.Next() {
		if last != nil && string(k) <= string(last) {
			damaged(fmt.Errorf("journal: %w", errOrder))
			return nil
		}
		last = k
		v := journalEntry(b, k)
		cells, err := decodeJournal(db.codecs, k, v)
		if err != nil {
			damaged(err)
			return nil
		}
		db.journalBytes += len(v)
		entries <- cells
	}
	return nil
}

// mergeJournal merges entries, which come from the oldest to the newest.
func mergeJournal(entries <-chan []journalCell) []journalCell {
	var runs [][]journalCell // each of them much longer than the next
	for cells := range entries {
		runs = append(runs, cells)
		for n := len(runs); n > 1 && len(runs[n-2]) < 2*len(runs[n-1]); n = len(runs) {
			runs = append(runs[:n-2], mergeCells(runs[n-2], runs[n-1]))
		}
	}
	var all []journalCell
	for i := len(runs) - 1; i >= 0; i-- {
		all = mergeCells(runs[i], all)
	}
	return all
}

// mergeCells merges two ordered runs of cells. Where both have an address, the
// younger one's cell counts.
func mergeCells(older, younger []journalCell) []journalCell {
	if len(older) == 0 || len(younger) == 0 {
		return append(older, younger...)
	}
	merged := make([]journalCell, 0, len(older)+len(younger))
	for len(older) > 0 && len(younger) > 0 {
		switch a, b := older[0].addr, younger[0].addr; {
		case a < b:
			merged, older = append(merged, older[0]), older[1:]
		case a > b:
			merged, younger = append(merged, younger[0]), younger[1:]
		default:
			merged, older, younger = append(merged, younger[0]), older[1:], younger[1:]
		}
	}
	return append(append(merged, older...), younger...)
}
