package bolt

import (
	"context"
	"errors"
	"maps"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// hooked returns opts with hooks that set changed.
func hooked(opts Options, set func(*hooks)) Options {
	var h hooks
	if opts.hooks != nil {
		h = *opts.hooks
	}
	set(&h)
	opts.hooks = &h
	return opts
}

// Fold folds at once.
func (db *DB) Fold() error {
	l := db.lock()
	defer l.unlock()
	if db.handle.Closed() {
		return store.ErrClosed
	}
	return db.log.Fold()
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

// Sign stamps the transaction of a test that changes a file through bbolt.
func Sign(tx *bbolt.Tx, closed bool) error {
	stamp := format.TxStamp{Tx: uint64(tx.ID()), Clean: closed, Boot: boltfile.BootID()}
	return tx.Bucket(format.BucketMeta).Put(format.KeyTxStamp, stamp.Encode())
}

// ByHand returns options under which nothing runs in the background. BuildStep does one step of
// builds, with so many records.
func ByHand(opts Options, records int) Options {
	return hooked(opts, func(h *hooks) { h.byHand, h.stepRecords = true, records })
}

// InSteps returns options under which a step of a build has so many records.
func InSteps(opts Options, records int) Options {
	return hooked(opts, func(h *hooks) { h.stepRecords = records })
}

// OnDisk returns options for a disk that has the room that free returns.
func OnDisk(opts Options, free func(dir string) (int64, error)) Options {
	return hooked(opts, func(h *hooks) { h.freeDisk = free })
}

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

// CompactSteps returns options under which a compaction calls a function at each step.
func CompactSteps(opts Options, at func(step string) error) Options {
	return hooked(opts, func(h *hooks) { h.compactStep = at })
}

// InSlices returns options under which one transaction of a fold writes about so many bytes,
// and between is called between two of them. If between returns an error, the fold ends.
func InSlices(opts Options, bytes int, between func() error) Options {
	return hooked(opts, func(h *hooks) { h.sliceBytes, h.foldStep = bytes, between })
}

// WaitForBackground blocks until nothing runs in the background.
func (db *DB) WaitForBackground() { db.active.Wait() }

// BuildStep does one step of each build and reports whether any has more to do.
func (db *DB) BuildStep() (more bool, err error) {
	for _, b := range db.runningBuilds() {
		_, after, err := b.step()
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

// NetworkFS is boltfile.NetworkFS.
var NetworkFS = boltfile.NetworkFS

// OnFileSystem returns options under which fileSystem returns the kind of file system of a path.
func OnFileSystem(opts Options, fileSystem func(path string) (string, error)) Options {
	return hooked(opts, func(h *hooks) { h.networkFS = fileSystem })
}

// OpenReads returns the number of open read transactions.
func (db *DB) OpenReads() int {
	tx, err := db.handle.Begin()
	if err != nil {
		return 0
	}
	defer tx.Rollback()
	return tx.File().OpenReads() - 1
}
