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

	// Format is that of the database, and Key the id of its encryption key, empty if the
	// database is not encrypted.
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
func (db *DB) Backup(ctx context.Context, dir string, progress func(done, total int64)) (*Backup, error) {
	if err := db.JournalCorruption(); err != nil && db.opts.ReadOnly {
		return nil, err // if it is open for writing, DB.begin has dropped the corrupt journal
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	from, tx, over, err := db.freeze()
	if err != nil {
		return nil, fmt.Errorf("copy database: %w", err)
	}
	defer db.handle.Release(from)
	defer tx.Rollback()
	used := tx.UsedBytes()
	if err := checkFreeSpace(dir, used+used/2+copySpareBytes, db.hooks.freeDisk); err != nil {
		return nil, fmt.Errorf("copy database: %w", err)
	}
	collections, err := db.inventory(tx, over)
	if err != nil {
		return nil, err
	}
	f, err := db.backupFile(ctx, dir, from, tx, func(done int64) {
		if progress != nil {
			progress(min(done, used), used)
		}
	})
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy database: %w", err), f.Close())
	}
	return &Backup{File: f, Bytes: info.Size(), Format: from.Version(), Key: from.KeyID(), Collections: collections}, nil
}

// freeze makes all applied changes durable and returns a read transaction of that state, its
// file and the memtable of the same moment. The caller ends the transaction and releases the
// file.
func (db *DB) freeze() (*boltfile.File, *boltfile.Tx, *writeback.Overlay, error) {
	l := db.lock()
	defer l.unlock()
	if db.handle.Closed() {
		return nil, nil, nil, store.ErrClosed
	}
	if !db.opts.ReadOnly {
		if err := db.log.Flush(); err != nil {
			return nil, nil, nil, err
		}
	}
	f, err := db.handle.Acquire()
	if err != nil {
		return nil, nil, nil, err
	}
	tx, err := f.Begin()
	if err != nil {
		db.handle.Release(f)
		return nil, nil, nil, err
	}
	return f, tx, db.log.Snapshot(), nil
}

// inventory returns the collections that a transaction sees.
func (db *DB) inventory(tx *boltfile.Tx, over *writeback.Overlay) ([]BackupCollection, error) {
	found := []BackupCollection{}
	err := tx.Read(func() error {
		return tx.Bucket(format.BucketCollections).ForEachBucket(func(id []byte) error {
			v := &view{db: db, tx: tx, over: over, id: string(id)}
			if err := v.load(); err != nil {
				return err
			}
			found = append(found, BackupCollection{Info: v.info, State: v.state})
			return nil
		})
	})
	return found, err
}

// backupFile copies the content that a transaction reads to a new file in dir, and removes the
// file's name as soon as it is open.
func (db *DB) backupFile(ctx context.Context, dir string, from *boltfile.File, tx *boltfile.Tx, progress func(int64)) (f *os.File, err error) {
	tmp, err := os.MkdirTemp(dir, ".copy-*")
	if err != nil {
		return nil, fmt.Errorf("copy database: %w", err)
	}
	defer func() {
		if rmErr := os.RemoveAll(tmp); err == nil && rmErr != nil {
			f, err = nil, errors.Join(rmErr, f.Close())
		}
	}()
	path := filepath.Join(tmp, "copy.db")
	dst, err := from.OpenScratch(path)
	if err != nil {
		return nil, fmt.Errorf("copy database: %w", err)
	}
	f, err = os.Open(path)
	if err == nil {
		h := &backup{path: db.path, src: tx}
		err = errors.Join(os.RemoveAll(tmp), h.run(ctx, dst, progress))
	}
	if err = errors.Join(err, dst.Close()); err != nil {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	return f, nil
}

// backup copies the content that a transaction reads.
type backup struct {
	path string // of the source, for errors
	src  *boltfile.Tx
}

func (h *backup) run(ctx context.Context, dst *boltfile.File, progress func(int64)) error {
	var current map[string]string
	err := h.src.Read(func() (err error) {
		current, err = h.generations()
		return err
	})
	if err != nil {
		return err
	}
	var done int64
	err = boltfile.CopyBuckets(ctx, dst, h.src, boltfile.CopyOptions{
		Visit:    h.verify,
		Progress: func(bytes int) { done += int64(bytes); progress(done) },
		Skip: func(path [][]byte, name []byte) bool {
			return len(path) == 2 && bytes.Equal(path[0], format.BucketCollections) && string(name) != current[string(path[1])]
		},
	})
	if errors.Is(err, boltfile.ErrOrder) {
		return &store.CorruptionError{Path: h.path, Reason: err.Error()}
	}
	if err != nil {
		return err
	}
	return dst.Update(func(tx *boltfile.Tx) error { return boltfile.Stamp(tx, true) })
}

// generations returns the name of each collection's current generation.
func (h *backup) generations() (map[string]string, error) {
	current := map[string]string{}
	all := h.src.Bucket(format.BucketCollections)
	err := all.ForEachBucket(func(id []byte) error {
		n, err := readGen(h.path, string(id), all.Bucket(id))
		current[string(id)] = string(format.GenName(n))
		return err
	})
	return current, err
}

// verify verifies the checksum of an entry, if its kind has one.
func (h *backup) verify(path [][]byte, k, v []byte) error {
	var err error
	damage := &store.CorruptionError{Path: h.path}
	name := func(depth int) []byte {
		if depth < len(path) {
			return path[depth]
		}
		return nil
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
	case !bytes.Equal(path[0], format.BucketCollections) || len(path) < 2:
	case len(path) == 2 && bytes.Equal(k, format.KeyDescription): // a corrupt one counts as none
	case len(path) == 2, len(path) == 3:
		damage.Collection = string(path[1])
		if _, sealErr := format.VerifyChecksum(damage.Collection, k, v); sealErr != nil {
			err = fmt.Errorf("%s: %w", k, sealErr)
		}
	case bytes.Equal(name(3), format.BucketObjects):
		damage.Collection, damage.Key = string(path[1]), string(k)
		_, err = format.DecodeRecord(k, v)
	case bytes.Equal(name(3), format.BucketFeed):
		damage.Collection = string(path[1])
		_, _, err = format.DecodeFeedEntry(k, v)
	case bytes.Equal(name(3), format.BucketTombs):
		damage.Collection = string(path[1])
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
