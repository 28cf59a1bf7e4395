package bolt

import (
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
	h := hooks{}
	if opts.hooks != nil {
		h = *opts.hooks
	}
	set(&h)
	opts.hooks = &h
	return opts
}

// Fold lets tests fold when they want.
func (db *DB) Fold() error {
	l := db.lock()
	defer l.unlock()
	if db.handle.Closed() {
		return store.ErrClosed
	}
	return db.log.Fold()
}

// JournalBytes lets tests see how much the journal holds.
func (db *DB) JournalBytes() int {
	l := db.lock()
	defer l.unlock()
	return db.log.JournalBytes()
}

// NearFold says whether a journal that grows by twice as much as since the numbers
// before would be folded, and returns the numbers now.
func (db *DB) NearFold(bytes, cells int) (near bool, bytesNow, cellsNow int) {
	bytesNow, cellsNow = db.JournalBytes(), db.log.Cells()
	near = bytesNow+2*(bytesNow-bytes) >= writeback.FoldBytes || cellsNow+2*(cellsNow-cells) >= writeback.MaxCells
	return near, bytesNow, cellsNow
}

// CompactWith is Compact on a disk with as much room as free says.
var CompactWith = compact

// Seal and Unseal let tests change a collection's small values.
var (
	Seal   = format.WithChecksum
	Unseal = format.VerifyChecksum
)

// Sign lets tests change a file through bbolt.
func Sign(tx *bbolt.Tx, closed bool) error {
	stamp := format.TxStamp{Tx: uint64(tx.ID()), Clean: closed, Boot: boltfile.BootID()}
	return tx.Bucket(format.BucketMeta).Put(format.KeyTxStamp, stamp.Encode())
}

// ByHand makes options under which nothing happens in the background, and builds and
// sweeps of indexes go on by so many records a step, with BuildStep.
func ByHand(opts Options, records int) Options {
	return hooked(opts, func(h *hooks) { h.byHand, h.stepRecords = true, records })
}

// InSteps makes options under which builds and sweeps go on by so many records a step.
func InSteps(opts Options, records int) Options {
	return hooked(opts, func(h *hooks) { h.stepRecords = records })
}

// CompactAt makes options under which a database compacts itself from so many free
// bytes on, on a disk with as much room as free says; nil is the disk that there is.
func CompactAt(opts Options, minFree int64, free func(dir string) (int64, error)) Options {
	return hooked(opts, func(h *hooks) { h.compactMinFree, h.freeDisk = minFree, free })
}

// CompactAnyway makes options under which a compaction counts that gains nothing.
func CompactAnyway(opts Options) Options {
	return hooked(opts, func(h *hooks) { h.compactAnyway = true })
}

// CompactSteps makes options under which a compaction calls at each step.
func CompactSteps(opts Options, at func(step string) error) Options {
	return hooked(opts, func(h *hooks) { h.compactStep = func(s compactStep) error { return at(string(s)) } })
}

// InSlices makes options under which one transaction of a fold writes about so many
// bytes, and between happens between two of them. Its error ends the fold there.
func InSlices(opts Options, bytes int, between func() error) Options {
	return hooked(opts, func(h *hooks) { h.sliceBytes, h.foldStep = bytes, between })
}

// WaitForBackground returns when nothing goes on in the background.
func (db *DB) WaitForBackground() { db.background.active.Wait() }

// BuildStep does one step of each build and says whether any has more to do.
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

// WaitForBuilds returns when no index is being built or removed any more.
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

// HotCopyWith is Backup on a disk with as much room as free says.
var HotCopyWith = (*DB).backupTo

// NetworkFS is boltfile.NetworkFS.
var NetworkFS = boltfile.NetworkFS

// OnFileSystem returns options under which fileSystem says what a path is on.
func OnFileSystem(opts Options, fileSystem func(path string) (string, error)) Options {
	return hooked(opts, func(h *hooks) { h.networkFS = fileSystem })
}

// OpenReads returns how many transactions read the file.
func (db *DB) OpenReads() int {
	return db.handle.Stats(db.opts.Keys).OpenReads
}

// Mapping returns opts for a platform that maps files of at most so many bytes.
func Mapping(opts Options, limit int64) Options {
	return hooked(opts, func(h *hooks) { h.maxMapBytes = limit })
}
