package bolt

import (
	"io/fs"
	"os"

	"github.com/snapcache/snapcache/store"
)

// file is the open file of a database. A compaction puts another one in its place;
// the old one is closed when its last reader has gone, so that closing it, and with
// it whoever wants to read, waits for nobody.
type file struct {
	*boltFile
	info fs.FileInfo // which file it is

	readers int // guarded by DB.mu, as is what follows
	retired bool
}

func newFile(bdb *boltFile, path string) (*file, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &file{boltFile: bdb, info: info}, nil
}

// acquire returns the file that counts, to read from until release.
func (db *DB) acquire() (*file, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil, store.ErrClosed
	}
	db.file.readers++
	return db.file, nil
}

// release lets go of a file.
func (db *DB) release(f *file) {
	db.mu.Lock()
	f.readers--
	last := f.retired && f.readers == 0
	db.mu.Unlock()
	if last {
		db.discard(f)
	}
}

// exchange makes f the file that counts. The caller holds the write lock.
func (db *DB) exchange(f *file) {
	db.closeWriterViews()
	db.mu.Lock()
	old := db.file
	db.file, old.retired = f, true
	tx := old.Stats().TxStats
	db.pagesBefore, db.syncBefore = db.pagesBefore+tx.GetWrite(), db.syncBefore+tx.GetWriteTime()
	db.retired.Add(1)
	unread := old.readers == 0
	db.mu.Unlock()
	if unread {
		db.discard(old)
	}
}

// discard closes a file that nobody reads from any more.
func (db *DB) discard(f *file) {
	defer db.retired.Done()
	if err := f.Close(); err != nil {
		db.opts.Logger.Warn("the file from before a compaction could not be closed", "error", err)
	}
}
