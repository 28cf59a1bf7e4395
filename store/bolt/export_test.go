package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// Fold folds at once.
func (db *DB) Fold() error {
	l := db.lock()
	defer l.unlock()
	if db.handle.Closed() {
		return store.ErrClosed
	}
	return db.log.Fold()
}

// FoldSlices folds at once, in slices of about limit bytes. It calls between before each slice but the
// first; if that returns false, the fold ends there, half done.
func (db *DB) FoldSlices(limit int, between func() bool) error {
	l := db.lock()
	defer l.unlock()
	f, err := db.log.BeginFold(limit)
	for first := true; err == nil && f.More() && (first || between()); first = false {
		err = f.Slice()
	}
	return err
}

// ViewAfter is View that calls between when it has the memtable and not yet the file.
func (db *DB) ViewAfter(id string, between func()) (store.View, error) {
	return db.viewUnder(id, func() *writeback.Overlay {
		o := db.log.Snapshot()
		between()
		return o
	}, (*view).load)
}

// OnCommit calls fn before each commit from now on.
func (db *DB) OnCommit(fn func()) {
	l := db.lock()
	defer l.unlock()
	before := db.committer.BeforeCommit
	db.committer.BeforeCommit = func() { fn(); before() }
}

// CloseFailing is Close whose last fold fails with err.
func (db *DB) CloseFailing(err error) error {
	l := db.lock()
	defer l.unlock()
	l.closeViews()
	return errors.Join(db.committer.Close(func() error { return err }), db.handle.Close())
}

// JournalBytes returns the bytes of the journal.
func (db *DB) JournalBytes() int {
	l := db.lock()
	defer l.unlock()
	return db.log.JournalBytes()
}

// NearFold reports whether a journal would be folded that grows by twice as much as since the
// numbers before, and returns the numbers now.
func (db *DB) NearFold(bytes, cells int) (near bool, bytesNow, cellsNow int) {
	bytesNow, cellsNow = db.JournalBytes(), db.log.Cells()
	near = bytesNow+2*(bytesNow-bytes) >= writeback.FoldBytes || cellsNow+2*(cellsNow-cells) >= writeback.MaxCells
	return near, bytesNow, cellsNow
}

// Seal and Unseal set and verify the checksum of a collection's small value.
var (
	Seal   = format.WithChecksum
	Unseal = format.VerifyChecksum
)

// AppendJournal appends an entry to the journal whose only cell has the value.
func AppendJournal(tx *bbolt.Tx, value []byte) error {
	b, err := tx.CreateBucketIfNotExists(format.BucketJournal)
	if err != nil {
		return err
	}
	seq, err := b.NextSequence()
	if err != nil {
		return err
	}
	key := binary.BigEndian.AppendUint64(nil, seq)
	raw, err := format.EncodeJournalEntry(format.NewCodecs(), key, []string{"cell"}, func(string) ([]byte, bool) { return value, false })
	if err != nil {
		return err
	}
	entry, err := b.CreateBucket(key)
	if err != nil {
		return err
	}
	return entry.Put(format.KeyEntry, raw)
}

// ForgetDecoders drops all decoders, as those of many other dictionaries do.
func (db *DB) ForgetDecoders() { *db.codecs = *format.NewCodecs() }

// Sign stamps the transaction of a test that changes a file through bbolt.
func Sign(tx *bbolt.Tx, closed bool) error {
	stamp := format.TxStamp{Tx: uint64(tx.ID()), Clean: closed, Boot: boltfile.BootID()}
	return tx.Bucket(format.BucketMeta).Put(format.KeyTxStamp, stamp.Encode())
}

// OpenByHand opens a database in which nothing runs in the background.
func OpenByHand(path string, opts Options) (*DB, error) { return open(path, opts, false, nil) }

// CompactAnyway is Compact of a file that is to be sanitized, which is replaced even if that saves
// nothing.
func (db *DB) CompactAnyway(ctx context.Context) error {
	was := db.compactor.count.Load()
	err := db.hidden(func(tx *boltfile.Tx) error { return tx.Bucket(format.BucketMeta).Put(format.KeySanitize, []byte{1}) })
	if err == nil {
		_, _, err = db.Compact(ctx)
	}
	if err == nil && db.compactor.count.Load() == was {
		err = errors.New("the file was not replaced")
	}
	return err
}

// WaitForBackground blocks until nothing runs in the background.
func (db *DB) WaitForBackground() { db.active.Wait() }

// BuildStep does one step of each build, of at most so many objects, and reports whether any has more
// to do.
func (db *DB) BuildStep(objects int) (more bool, err error) {
	for _, b := range db.runningBuilds() {
		_, after, err := b.step(objects)
		if err != nil {
			return true, err
		}
		more = more || after != stepDone
	}
	return more, nil
}

// WaitForBuilds blocks until no index is being built or removed.
func (db *DB) WaitForBuilds() {
	for _, b := range db.runningBuilds() {
		<-b.done
	}
}

func (db *DB) runningBuilds() []*build {
	l := db.lock()
	defer l.unlock()
	return slices.Collect(maps.Values(l.indexer.builds))
}

// FreeDisk is boltfile.FreeDisk.
var FreeDisk = boltfile.FreeDisk

// OpenReads returns the number of open read transactions.
func (db *DB) OpenReads() int {
	tx, err := db.handle.Begin()
	if err != nil {
		return 0
	}
	defer tx.Rollback()
	return tx.File().OpenReads() - 1
}

// TakeFromOwner ends the ownership of a collection, as its owner's Close does.
func (db *DB) TakeFromOwner(id string) {
	db.owners.End(db.owners.Get(id), store.ErrClosed)
}

// BeginFlush begins a flush by the timer, nil if none is due. Then come commit and end, with the result of commit.
func (db *DB) BeginFlush() (commit func() error, end func(error)) {
	f := db.beginFlush()
	if f == nil {
		return nil, nil
	}
	return f.Commit, func(err error) { db.endFlush(f, err) }
}
