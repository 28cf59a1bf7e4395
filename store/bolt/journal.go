package bolt

import (
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

	// foldBytes, maxCells and foldInterval bound what opening has to replay: bytes of
	// journal, cells in the memtable and time.
	foldBytes    = 8 << 20
	maxCells     = 100_000
	foldInterval = time.Hour

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

// journalCell is a cell with its address.
type journalCell struct {
	addr string
	cell
}

// decodeJournal returns the cells of a journal value, in the order of their
// addresses. They share one buffer.
func decodeJournal(c *codecs, key, b []byte) ([]journalCell, error) {
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
	var cells []journalCell
	for len(raw) > 0 {
		var addr []byte
		if addr, raw, err = lengthPrefixed(raw); err != nil || len(raw) == 0 {
			return nil, errJournal
		}
		// The buffer is never written to again, so it may be a string as well.
		x := journalCell{addr: unsafe.String(unsafe.SliceData(addr), len(addr)), cell: cell{deleted: raw[0] == 1}}
		raw = raw[1:]
		if !x.deleted {
			if x.value, raw, err = lengthPrefixed(raw); err != nil {
				return nil, errJournal
			}
		}
		if n := len(cells); n > 0 && cells[n-1].addr >= x.addr {
			return nil, errJournal
		}
		cells = append(cells, x)
	}
	return cells, nil
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
	err := db.append()
	if err == nil && !db.compacting && db.foldDue() {
		db.trimHistory()
		err = db.fold()
	}
	db.noteFlush(err)
	return err
}

// foldDue says that the journal has become as much as opening is to replay.
func (db *DB) foldDue() bool {
	return db.journalBytes >= foldBytes || db.mem.cells() >= maxCells ||
		db.journalBytes > 0 && db.opts.Clock.Since(db.folded) >= foldInterval
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
	err := db.commit(func(tx *fileTx) error {
		b, err := tx.CreateBucketIfNotExists(bucketJournal)
		if err != nil {
			return err
		}
		seq, err := b.NextSequence()
		if err != nil {
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
	db.journalBytes += size
	db.clean()
	return nil
}

// clean notes that everything in the memtable is durable.
func (db *DB) clean() {
	clear(db.dirty)
	db.dirtyBytes, db.dirtySince, db.dirtyChanges = 0, time.Time{}, false
}

// fold moves the memtable into the buckets, in key order, and drops the journal,
// in one transaction.
func (db *DB) fold() error {
	if err := db.pack(); err != nil {
		return fmt.Errorf("fold: %w", err)
	}
	over := db.mem.snapshot()
	if over.tree.Len() == 0 && db.journalBytes == 0 && db.journalDamage == nil {
		db.folded = db.opts.Clock.Now()
		return nil
	}
	err := db.rewrite(true, func(tx *fileTx) error {
		err := foldCells(tx, over)
		if err != nil || tx.Bucket(bucketJournal) == nil {
			return err
		}
		// The sequence goes on, so that an old entry never looks like a new one.
		seq := tx.Bucket(bucketJournal).Sequence()
		if err := tx.DeleteBucket(bucketJournal); err != nil {
			return err
		}
		b, err := tx.CreateBucket(bucketJournal)
		if err != nil {
			return err
		}
		return b.SetSequence(seq)
	})
	if err != nil {
		return fmt.Errorf("fold: %w", err)
	}
	db.journalBytes = 0
	db.clean()
	db.folded = db.opts.Clock.Now()
	db.considerCompaction()
	return nil
}

func foldCells(tx *fileTx, over *overlay) error {
	var bucket *fileBucket
	var at string
	var failed error
	over.tree.Scan(func(addr string, c cell) bool {
		path, key := locate(addr)
		if name := address(path, nil); bucket == nil || name != at {
			at, bucket = name, tx.Bucket(path[0])
			if bucket != nil {
				bucket = descend(bucket, path[1:])
			}
			if bucket == nil {
				failed = fmt.Errorf("bucket %q is missing", path)
				return false
			}
		}
		if c.deleted {
			failed = bucket.Delete(key)
		} else {
			failed = bucket.Put(key, c.value)
		}
		return failed == nil
	})
	return failed
}

// rewrite runs a transaction that changes buckets, and moves the file to the next
// epoch. Where folds is true, fn puts all of the memtable into the file; where it
// is false, fn must change nothing that a reader of the memtable's keys sees.
func (db *DB) rewrite(folds bool, fn func(*fileTx) error) error {
	db.mem.foldBegins()
	epoch := db.mem.snapshot().epoch
	err := db.commit(func(tx *fileTx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return tx.Bucket(bucketMeta).Put(keyEpoch, binary.BigEndian.AppendUint64(nil, epoch+1))
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
	db.mem.foldEnds(epoch+1, folds)
	return nil
}

func (db *DB) readEpoch() (epoch uint64, err error) {
	err = db.view(func(tx *fileTx) error { epoch = fileEpoch(tx); return nil })
	return epoch, err
}
