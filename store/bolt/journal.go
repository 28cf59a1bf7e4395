package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"
	"unsafe"

	"github.com/snapcache/snapcache/store"
)

// The journal bucket has one bucket a flush, under its sequence number (8 bytes, big
// endian), with one value, "entry". In a bucket of its own because bbolt keeps up to
// four values in a page, however large: as neighbours each of them would be written
// again with those that follow.
//
//	byte  0      format, journalFormat
//	bytes 1..4   CRC-32C, little endian, over the key and the rest
//	rest         one zstd frame of cells, in the order of their addresses
//
// A cell is: uvarint length and address; one byte, 1 where the key is deleted;
// unless it is, uvarint length and value.
const (
	journalFormat = 1
	journalHeader = 5

	// flushBytes is how much may wait for the flush interval to pass.
	flushBytes = 1 << 20

	// maxJournalBytes bounds one journal value, before compression. More than that
	// is folded at once.
	maxJournalBytes = maxObjectBytes / 2
)

var (
	bucketJournal = []byte("journal")
	keyEntry      = []byte("entry")
	keyEpoch      = []byte("epoch")
)

var errJournal = errors.New("journal entry is damaged")

// journalEntry returns the value of an entry, nil where there is none.
func journalEntry(journal *fileBucket, key []byte) []byte {
	entry := journal.Bucket(key)
	if entry == nil {
		return nil
	}
	return entry.Get(keyEntry)
}

func encodeJournal(c *codecs, key []byte, addrs []string, cells func(string) cell) ([]byte, error) {
	var raw []byte
	for _, addr := range addrs {
		x := cells(addr)
		raw = binary.AppendUvarint(raw, uint64(len(addr)))
		raw = append(raw, addr...)
		if x.deleted {
			raw = append(raw, 1)
			continue
		}
		raw = append(raw, 0)
		raw = binary.AppendUvarint(raw, uint64(len(x.value)))
		raw = append(raw, x.value...)
	}
	enc, err := c.encoder(0, nil)
	if err != nil {
		return nil, err
	}
	b := enc.EncodeAll(raw, make([]byte, journalHeader, journalHeader+len(raw)/2+64))
	b[0] = journalFormat
	binary.LittleEndian.PutUint32(b[1:], journalChecksum(key, b))
	return b, nil
}

func journalChecksum(key, b []byte) uint32 {
	sum := crc32.Checksum(key, castagnoli)
	sum = crc32.Update(sum, castagnoli, b[:1])
	return crc32.Update(sum, castagnoli, b[journalHeader:])
}

// entryCells are the cells of one journal entry, in the order of their addresses.
type entryCells struct {
	raw   []byte // the entry, uncompressed; never written to again
	cells []cellRef
}

// cellRef is where in an entry a cell is. There are a hundred thousand of them while a
// journal is replayed, so it is small, and no pointer, which garbage collection would
// have to follow.
type cellRef struct {
	entry    uint32 // which one, where there are several
	at, size uint32 // of the address
}

// addr returns a cell's address.
func (e *entryCells) addr(r cellRef) []byte { return e.raw[r.at : r.at+r.size] }

// cell returns a cell with its address, both of which share the entry's buffer.
func (e *entryCells) cell(r cellRef) (addr string, c cell) {
	b := e.addr(r)
	// The length of the value was looked at by decodeJournal.
	rest := e.raw[r.at+r.size:]
	if c.deleted = rest[0] == 1; !c.deleted {
		n, width := binary.Uvarint(rest[1:])
		rest = rest[1+width:]
		c.value = rest[:n:n]
	}
	return unsafe.String(unsafe.SliceData(b), len(b)), c
}

// decodeJournal returns the cells of a journal value, which is number entry among
// those that are read.
func decodeJournal(c *codecs, entry uint32, key, b []byte) (*entryCells, error) {
	if len(b) < journalHeader || b[0] != journalFormat || binary.LittleEndian.Uint32(b[1:]) != journalChecksum(key, b) {
		return nil, errJournal
	}
	dec, err := c.decoder(0, nil)
	if err != nil {
		return nil, err
	}
	raw, err := dec.DecodeAll(b[journalHeader:], nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errJournal, err)
	}
	if len(raw) > maxObjectBytes {
		return nil, errJournal
	}
	e := &entryCells{raw: raw}
	var last []byte
	for rest := raw; len(rest) > 0; {
		var addr []byte
		if addr, rest, err = lengthPrefixed(rest); err != nil || len(rest) == 0 {
			return nil, errJournal
		}
		if len(e.cells) > 0 && bytes.Compare(last, addr) >= 0 {
			return nil, errJournal
		}
		last = addr
		at := len(raw) - len(rest) - len(addr)
		e.cells = append(e.cells, cellRef{entry: entry, at: uint32(at), size: uint32(len(addr))}) //nolint:gosec // at most maxObjectBytes
		deleted := rest[0] == 1
		if rest = rest[1:]; !deleted {
			if _, rest, err = lengthPrefixed(rest); err != nil {
				return nil, errJournal
			}
		}
	}
	return e, nil
}

func lengthPrefixed(b []byte) (value, rest []byte, err error) {
	n, b, err := uvarint(b)
	if err != nil || n > uint64(len(b)) {
		return nil, nil, errJournal
	}
	return b[:n], b[n:], nil
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
	if db.isClosed() {
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
		err = db.dispel()
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
	err := db.commit(func(tx *fileTx) error {
		b, err := tx.CreateBucketIfNotExists(bucketJournal)
		if err != nil {
			return err
		}
		if seq, err = b.NextSequence(); err != nil {
			return err
		}
		key := binary.BigEndian.AppendUint64(nil, seq)
		value, err := encodeJournal(db.codecs, key, addrs, func(addr string) cell { c, _ := over.tree.Get(addr); return c })
		if err != nil {
			return err
		}
		size = len(value)
		entry, err := b.CreateBucket(key)
		if err != nil {
			return err
		}
		return entry.Put(keyEntry, value)
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
