package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// copySpareBytes is the disk space that a copy, and a snapshot made from it, leave free for the
// database.
const copySpareBytes = 16 << 20

// Backup is a copy of a database as it was at one moment.
type Backup struct {
	// File holds the copy, from offset 0 to Bytes. It has no name: the copy is gone when the
	// caller, who owns the file, closes it.
	File  *os.File
	Bytes int64

	// Format is the database's, and Key the id of its encryption key, empty if it is not encrypted.
	Format int
	Key    string

	// Collections are the collections in the copy, ordered by ID.
	Collections []BackupCollection
}

// BackupCollection is one collection of a copy.
type BackupCollection struct {
	Info  store.Info
	State store.State
}

// Backup makes everything durable and copies it, file and journal, to a file in dir, while readers
// and writers go on. The copy has no free pages, which would hold old content, and no unfinished
// generations, so it is as small as possible.
//
// Backup verifies every checksum on the way. If one does not match, it returns a
// *store.CorruptionError and no copy. If the disk of dir has not enough space for one and a
// half copies, it returns ErrNoRoom.
//
// A read transaction is open while the copy is written to a local disk, so the database file grows
// a little with the changes committed meanwhile.
//
// progress, unless it is nil, is called now and then with the number of bytes copied so far and the
// approximate total.
func (db *DB) Backup(ctx context.Context, dir string, progress func(done, total int64)) (_ *Backup, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("copy database: %w", err)
		}
	}()
	if err := db.JournalCorruption(); err != nil && db.opts.ReadOnly {
		return nil, err // if it is open for writing, DB.begin has dropped the corrupt journal
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tx, over, err := db.freeze()
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	used := tx.UsedBytes()
	if err := CheckFreeSpace(dir, used+used/2+copySpareBytes); err != nil {
		return nil, err
	}
	var done int64
	h := &backup{db: db, src: tx, gens: map[string][]byte{}, progress: func(bytes int) {
		if done += int64(bytes); progress != nil {
			progress(min(done, used), used)
		}
	}}
	if err := tx.Read(func() error { return h.inventory(over) }); err != nil {
		return nil, err
	}
	f, err := h.file(ctx, dir)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	from := tx.File()
	return &Backup{File: f, Bytes: info.Size(), Format: from.Version(), Key: from.KeyID(), Collections: h.collections}, nil
}

// freeze makes all applied changes durable and returns a read transaction of that state, which the
// caller ends, and the memtable of the same moment.
func (db *DB) freeze() (*boltfile.Tx, *writeback.Overlay, error) {
	l := db.lock()
	defer l.unlock()
	if !db.opts.ReadOnly && !db.handle.Closed() {
		if err := db.log.Flush(); err != nil {
			return nil, nil, err
		}
	}
	tx, err := db.handle.Begin()
	return tx, db.log.Snapshot(), err
}

// backup copies the content that a transaction reads.
type backup struct {
	db       *DB
	src      *boltfile.Tx
	progress func(bytes int)

	collections []BackupCollection
	gens        map[string][]byte // name of each collection's current generation
}

// inventory lists the collections.
func (h *backup) inventory(over *writeback.Overlay) error {
	h.collections = []BackupCollection{}
	return eachCollection(h.src, func(id string, _ *boltfile.Bucket) error {
		v := &view{db: h.db, tx: h.src, over: over, id: id}
		if err := v.load(); err != nil {
			return err
		}
		h.collections = append(h.collections, BackupCollection{Info: v.info, State: v.state})
		h.gens[id] = v.base[2]
		return nil
	})
}

// file copies the content to a new file in dir, and removes the file's name as soon as it is open.
func (h *backup) file(ctx context.Context, dir string) (f *os.File, err error) {
	tmp, err := os.MkdirTemp(dir, ".copy-*")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(tmp, "copy.db")
	dst, err := h.src.File().OpenScratch(path)
	if err == nil {
		f, err = os.Open(path)
	}
	if err = errors.Join(err, os.RemoveAll(tmp)); err == nil {
		err = h.copy(ctx, dst)
	}
	if dst != nil {
		err = errors.Join(err, dst.Close())
	}
	if err != nil && f != nil {
		err = errors.Join(err, f.Close())
	}
	return f, err
}

func (h *backup) copy(ctx context.Context, dst *boltfile.File) error {
	err := boltfile.CopyBuckets(ctx, dst, h.src, boltfile.CopyOptions{
		Visit: h.verify, Progress: h.progress,
		Skip: func(path [][]byte, name []byte) bool {
			return len(path) == 2 && bytes.Equal(path[0], format.BucketCollections) && !bytes.Equal(name, h.gens[string(path[1])])
		},
	})
	if errors.Is(err, boltfile.ErrOrder) {
		return &store.CorruptionError{Path: h.db.path, Reason: err.Error()}
	}
	if err != nil {
		return err
	}
	return dst.Update(func(tx *boltfile.Tx) error { return boltfile.Stamp(tx, true) })
}

// verify verifies the checksum of an entry, if its kind has one.
func (h *backup) verify(path [][]byte, k, v []byte) error {
	var err error
	damage := &store.CorruptionError{Path: h.db.path}
	if bytes.Equal(path[0], format.BucketCollections) && len(path) > 1 {
		damage.Collection = string(path[1])
	}
	switch {
	case bytes.Equal(path[0], format.BucketJournal):
		if err = format.ErrJournal; len(path) == 2 {
			err = format.VerifyJournalEntry(path[1], v)
		}
	case bytes.Equal(path[0], format.BucketDict):
		if format.DecodeDict(k, v) == nil {
			err = fmt.Errorf("dictionary %x is corrupt", k)
		}
	case damage.Collection == "", len(path) == 2 && bytes.Equal(k, format.KeyDescription): // a corrupt one counts as none
	case len(path) < 4:
		if _, err = format.VerifyChecksum(damage.Collection, k, v); err != nil {
			err = fmt.Errorf("%s: %w", k, err)
		}
	case bytes.Equal(path[3], format.BucketObjects):
		damage.Key = string(k)
		_, err = format.DecodeRecord(k, v)
	case bytes.Equal(path[3], format.BucketFeed):
		_, _, err = format.DecodeFeedEntry(k, v)
	case bytes.Equal(path[3], format.BucketTombs):
		err = h.verifyTombstone(path, k, v)
	}
	if err == nil {
		return nil
	}
	damage.Reason = err.Error()
	return damage
}

// verifyTombstone verifies the record of a deleted object. Its checksum covers the object's
// key, which is in the entry of the feed.
func (h *backup) verifyTombstone(path [][]byte, k, v []byte) error {
	b := h.src.At(append(path[:3:3], format.BucketFeed))
	if b == nil {
		return format.ErrFeedEntry
	}
	_, e, err := format.DecodeFeedEntry(k, b.Get(k))
	if err != nil {
		return err
	}
	_, err = format.DecodeRecord([]byte(e.Key), v)
	return err
}
