package bolt

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
	"unsafe"
)

// doubt is what there is of a transaction whose last sync failed: everybody in this
// process sees it, and whether the disk has it nobody knows. bbolt's meta page is the one
// thing that may be missing there, as the data was synced before it was written; the
// kernel takes it for written and will not write it again, and may at any time forget it
// and read the old one.
//
// So before anything else is written, the very same page is, and is synced. Until then
// either state is what a power cut leaves, each of them whole.
type doubt struct {
	page  []byte // bbolt's newest meta page
	at    int64  // its offset
	cause error

	// bbolt has forgotten which pages the transaction freed, and would use them again at
	// once. Views from before it still read them.
	viewed bool
	since  time.Time
}

// errViewed says that views from before a failed sync are still open.
var errViewed = errors.New("what was read before it has to end first")

// doubted looks at what is left of a transaction that failed when it was committed. It
// returns no error where the transaction is there all the same. The caller holds the write
// lock.
func (db *DB) doubted(id int, cause error) error {
	var seen int
	if err := db.file.View(func(tx *fileTx) error { seen = tx.ID(); return nil }); err != nil {
		return errors.Join(cause, err)
	}
	if seen != id {
		return cause // it was taken back
	}
	// bbolt's two meta pages take turns. They are copied from the mapping: reading the
	// file might bring an old one into it.
	d := &doubt{page: make([]byte, pageSize), at: int64(id%2) * pageSize, cause: cause, since: db.opts.Clock.Now()}
	data := db.file.Info().Data
	mapping := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&data))), 2*pageSize)
	copy(d.page, mapping[d.at:])
	d.viewed = db.file.Stats().OpenTxN > 0
	db.doubt = d
	db.doubts++
	db.noteFlush(db.dispel())
	return nil
}

// dispel makes durable what is in doubt. Nothing may be written before it succeeds. The
// caller holds the write lock.
func (db *DB) dispel() error {
	d := db.doubt
	if d == nil {
		return db.name()
	}
	if d.viewed && db.file.Stats().OpenTxN > 0 && db.opts.Clock.Since(d.since) < db.opts.ViewLimit {
		return fmt.Errorf("after a failed sync: %w (it was: %w)", errViewed, d.cause)
	}
	if _, err := db.file.raw.WriteAt(d.page, d.at); err != nil {
		return fmt.Errorf("after a failed sync: %w", err)
	}
	if err := db.file.Sync(); err != nil {
		return fmt.Errorf("sync again: %w", err)
	}
	db.doubt = nil
	return db.name()
}

// name makes it durable that the database's name is that of this file. What is written to
// it is worth nothing while a power cut may give the name back to the file from before a
// compaction: where the directory was not synced after that, or whoever was to do it has
// not come to it. The caller holds the write lock.
func (db *DB) name() error {
	if db.named {
		return nil
	}
	path, err := filepath.EvalSymlinks(db.path)
	if err == nil {
		err = SyncDir(filepath.Dir(path))
	}
	db.named = err == nil
	return err
}

// settle is dispel for whoever does not hold the write lock.
func (db *DB) settle() error {
	db.write.Lock()
	defer db.write.Unlock()
	return db.dispel()
}
