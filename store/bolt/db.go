package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

const (
	// EncryptedFormat is the highest version of the file format that this package writes.
	EncryptedFormat = format.EncryptedFormat

	// DefaultViewLimit is how long a view may stay open if Options have no limit.
	DefaultViewLimit = 30 * time.Second

	// DefaultMaxBytes is the quota of a file, in bytes, if Options have none.
	DefaultMaxBytes = 1 << 30
)

// Options are the settings of a database. The zero value works.
type Options struct {
	// MaxBytes is the file's quota; a write fails if it would grow the file further.
	// 0 is DefaultMaxBytes.
	MaxBytes int64

	// ReadOnly opens an existing file for reading only, beside other readers.
	ReadOnly bool

	// OrReadOnly opens an existing file for reading if its disk takes no writes: it is read-only or full,
	// or this user may not write. Changes are kept in memory, as when a disk gets full later, and a flush
	// that finds the disk writable makes them durable. [DB.Stats] has the error until then.
	OrReadOnly bool

	// Keys are the keys that the file may be encrypted with. If it has another key than
	// Keys.Primary, it is rewritten in the background when the first collection is opened.
	Keys Keyring

	// Writer names the program's version, for the file's meta bucket.
	Writer string

	// FlushInterval is how long changes may be dirty before a flush if there are 256 KiB of
	// them. A smaller batch waits up to twelve times as long, but no more than 60 s unless
	// FlushInterval is longer; a change of the checkpoint alone waits twelve times as long.
	// If a crash loses changes, the watch sends them again. 0 is 5 s.
	FlushInterval time.Duration

	// ViewLimit is how long a view may stay open before it ends with
	// store.ErrViewExpired: an open view keeps pages of the file from being used
	// again, so that the file grows with every change. 0 is 30 s.
	ViewLimit time.Duration

	// HistoryRetention and HistoryBytes bound the history of each collection: older entries,
	// or entries beyond the size, are trimmed within the hour. 0 is
	// store.DefaultHistoryRetention and store.DefaultHistoryBytes.
	HistoryRetention time.Duration
	HistoryBytes     int64

	// NoHistory lets collections record no history, from their next complete list on: readers get a
	// store.TooOldError for the changes since any resourceVersion before the checkpoint. Informers need no
	// history; the watches that an agent serves do. Without it a change takes less CPU time and fewer bytes.
	NoHistory bool

	// Clock is the source of time; nil is the real clock.
	Clock clock.WithDelayedExecution

	// ReplaceBudget is how many bytes of compressed records a replacement keeps in memory before it
	// fills a new generation on disk, and of objects before it makes the collection's first
	// dictionary. 0 is 1 MiB.
	ReplaceBudget int

	// OnCorrupt, unless it is nil, is called for each read of a corrupt record, in the reader's
	// goroutine, so repeatedly for the same record. It must not block, and must not use the
	// database.
	OnCorrupt func(collection, key string)

	// AfterClose, unless it is nil, is called once the file is closed.
	AfterClose func() error

	// Logger logs the work of the database in the background; nil discards it.
	Logger *slog.Logger
}

// setDefaults sets the options that are zero.
func (opts *Options) setDefaults() {
	opts.MaxBytes = cmp.Or(opts.MaxBytes, DefaultMaxBytes)
	opts.FlushInterval = cmp.Or(opts.FlushInterval, 5*time.Second)
	opts.ViewLimit = cmp.Or(opts.ViewLimit, DefaultViewLimit)
	opts.HistoryRetention = cmp.Or(opts.HistoryRetention, store.DefaultHistoryRetention)
	opts.HistoryBytes = cmp.Or(opts.HistoryBytes, store.DefaultHistoryBytes)
	opts.ReplaceBudget = cmp.Or(opts.ReplaceBudget, 1<<20)
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
}

// DB is an open database. See [store.DB].
type DB struct {
	path       string
	opts       Options // immutable; Adjust changes log and historian instead
	background bool    // whether anything may run in the background, see locked.start
	codecs     *format.Codecs
	handle     *boltfile.Handle

	owners  store.Owners
	indexes sync.Map // collection ID → []store.Index that it is open with
	decoded sync.Map // see decodeOnce

	write       writeLock // held for every change; guards the fields below
	committer   *boltfile.Committer
	log         *writeback.Log
	writerViews map[string]*view // by collection, see locked.writerView
	historian   historian
	indexer     indexer
	compactor   compactor
	rekeyer     rekeyer

	ctx    context.Context //nolint:containedctx // of the work in the background, which no call has; ends with the database
	cancel context.CancelFunc
	active sync.WaitGroup // work in the background; Add only with the write lock held, while ctx has not ended
}

var _ store.DB = (*DB)(nil)

// Open opens the database at path. If there is none, it creates the file and its directory.
// Errors wrap store.ErrLocked, ErrNoStore (read-only), ErrForeign, ErrNewerFormat, ErrOldFormat,
// ErrKey, ErrNetworkFS, ErrTooLarge or are a *store.CorruptionError; the file is then unchanged.
func Open(path string, opts Options) (*DB, error) { return open(path, opts, true, nil) }

// open opens the database. If background is false, as for offline commands, it starts no background
// work. look, if not nil, inspects the file before any page reference is followed. If look fails, open
// returns that error.
func open(path string, opts Options, background bool, look func(*boltfile.File) error) (*DB, error) {
	opts.setDefaults()
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if opts.ReadOnly {
			return nil, fmt.Errorf("%s: %w", path, store.ErrNoStore)
		}
		if err := boltfile.Create(path, opts.Writer, opts.Keys.Primary, opts.file()); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("open database: %w", err)
	case !info.Mode().IsRegular():
		// Not ErrForeign: no caller should set a directory or a device aside.
		return nil, fmt.Errorf("open database: %s is not a regular file: name another path", path)
	case info.Size() == 0:
		return nil, fmt.Errorf("%s: %w: the file is empty", path, store.ErrForeign)
	}
	f, refusal, err := openFile(path, opts)
	if err != nil {
		return nil, err
	}
	if look != nil {
		err = look(f)
	}
	if err == nil {
		err = f.Unlock(opts.Keys)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	db := &DB{
		path: path, opts: opts, background: background, codecs: format.NewCodecs(), handle: boltfile.NewHandle(f, opts.Logger),
		writerViews: map[string]*view{}, historian: newHistorian(opts),
		indexer: indexer{builds: map[string]*build{}, spilling: map[string]bool{}},
	}
	db.write.flushed.L = &db.write
	db.ctx, db.cancel = context.WithCancel(context.Background())
	writer := locked{db} // the committer and the log call back with the lock held
	db.committer = &boltfile.Committer{
		Path: path, Handle: db.handle, Clock: opts.Clock, ViewLimit: opts.ViewLimit,
		BeforeCommit: writer.closeViews, AfterUncertain: func(err error) { db.log.NoteFlush(err) },
	}
	db.log = writeback.New(writeback.Options{
		Path: path, Handle: db.handle, Committer: db.committer, Codecs: db.codecs, Clock: opts.Clock, Logger: opts.Logger,
		Interval: opts.FlushInterval, OnTime: db.flushOnTime,
		BeforeFlush: writer.trimIfDue, BeforeFold: writer.trimHistories, MayFold: func() bool { return !db.compactor.running },
		AfterFold: writer.compactIfDue,
	})
	if err := db.begin(refusal); err != nil {
		return nil, errors.Join(err, db.handle.Close())
	}
	return db, nil
}

// openFile opens the file at path. If its disk takes no writes, and opts allow it, the file is opened for
// reading, and refusal is the error.
func openFile(path string, opts Options) (f *boltfile.File, refusal, err error) {
	f, err = boltfile.Open(path, opts.file())
	if err == nil || !opts.OrReadOnly || !files.RefusesWrites(err) {
		return f, nil, err
	}
	refusal, opts.ReadOnly = err, true
	if f, err = boltfile.Open(path, opts.file()); err != nil {
		return nil, nil, refusal
	}
	return f, refusal, nil
}

// begin replays the journal and, unless the database is read-only, prepares it for writes. refusal is why
// the file was opened for reading for the time being; nil if it was not.
func (db *DB) begin(refusal error) error {
	if err := db.log.Replay(); err != nil || db.opts.ReadOnly {
		return err
	}
	l := db.lock()
	defer l.unlock()
	toRead := refusal != nil
	db.committer.Prepare = func() error {
		if toRead {
			if err := db.committer.MakeWritable(db.opts.file(), db.opts.Keys); err != nil {
				return err
			}
			toRead = false
		}
		return l.prepare()
	}
	err := refusal
	if err == nil {
		err = db.committer.Ready()
	}
	if err != nil && db.opts.OrReadOnly && files.RefusesWrites(err) {
		db.log.NoteFlush(err) // which tries again
		return nil
	}
	return err
}

// prepare readies the file for writing: it removes a corrupt journal and the leftovers of a crash.
func (db locked) prepare() error {
	if db.log.JournalCorruption() != nil {
		// Replay would never reach an entry after the corrupt one.
		if err := db.log.Fold(); err != nil {
			return err
		}
	}
	// The file lock is held: no process uses the unfinished file of a compaction. If it can't be
	// removed, the next compaction tries again.
	if file, err := filepath.EvalSymlinks(db.path); err == nil {
		_ = os.Remove(file + compactSuffix)
	}
	return db.dropLeftovers()
}

// Collections returns the stored collections, ordered by ID.
func (db *DB) Collections() ([]store.Info, error) {
	var infos []store.Info
	err := db.handle.View(func(tx *boltfile.Tx) error {
		return eachCollection(tx, func(id string, b *boltfile.Bucket) error {
			info, err := decodeValue[store.Info](db.path, id, format.KeyInfo, b.Get(format.KeyInfo))
			infos = append(infos, info)
			return err
		})
	})
	return infos, err
}

// Drop deletes a collection. Dropping an absent one does nothing.
func (db *DB) Drop(id string) error { return db.drop(id, false) }

// drop deletes a collection, and its changes in the journal, which is folded before. If sanitize is
// true, SanitizeDue returns true from then on.
func (db *DB) drop(id string, sanitize bool) error {
	l := db.lock()
	defer l.unlock()
	err := l.update(func(tx *boltfile.Tx) error {
		if err := dropDicts(tx, id); err != nil {
			return err
		}
		if err := tx.Bucket(format.BucketCollections).DeleteBucket([]byte(id)); err != nil || !sanitize {
			return err
		}
		return tx.Bucket(format.BucketMeta).Put(format.KeySanitize, []byte{1})
	})
	if err != nil {
		return err
	}
	db.owners.End(db.owners.Get(id), store.ErrNoCollection)
	db.indexes.Delete(id)
	delete(db.indexer.spilling, id)
	return db.committer.ResyncMeta()
}

// SetOrigin stores the origin of the file's content, see Origin.
func (db *DB) SetOrigin(origin string) error {
	return db.hidden(func(tx *boltfile.Tx) error { return tx.Bucket(format.BucketMeta).Put(format.KeyOrigin, []byte(origin)) })
}

// Origin returns the snapshot that the content of the file was restored from, which may be another
// machine's; empty for none. The origin never changes while the file exists.
func (db *DB) Origin() (origin string, err error) {
	err = db.handle.View(func(tx *boltfile.Tx) error {
		origin = string(tx.Bucket(format.BucketMeta).Get(format.KeyOrigin))
		return nil
	})
	return origin, err
}

// Stats returns sizes and write totals.
func (db *DB) Stats() store.Stats {
	s := db.handle.Stats(db.opts.Keys)
	s.Path, s.FlushError, s.EncryptionDue = db.path, db.log.Err(), s.EncryptionDue && !db.opts.ReadOnly
	s.Commits, s.CommitTime = db.committer.Stats()
	if info, err := os.Stat(db.path); err == nil {
		s.FileBytes = info.Size()
	}
	s.Compactions, s.CompactTime, s.CompactedBytes = db.compactor.count.Load(), time.Duration(db.compactor.took.Load()), db.compactor.saved.Load()
	return s
}

// Adjust changes the options that can change while the database is open. flushInterval is in force
// from the next change on; if historyRetention or historyBytes became less, the history is trimmed
// within the hour, or at Close. 0 stands for the default.
func (db *DB) Adjust(flushInterval, historyRetention time.Duration, historyBytes int64) {
	opts := Options{FlushInterval: flushInterval, HistoryRetention: historyRetention, HistoryBytes: historyBytes}
	opts.setDefaults()
	l := db.lock()
	defer l.unlock()
	l.log.SetInterval(opts.FlushInterval)
	l.historian.retention, l.historian.bytes = opts.HistoryRetention, opts.HistoryBytes
}

// Flush makes all applied changes durable: one value in the journal for all collections, in
// one small transaction. It folds if the journal has grown large or old.
func (db *DB) Flush() error {
	l := db.lock()
	defer l.unlock()
	if db.handle.Closed() {
		return store.ErrClosed
	}
	return db.log.Flush()
}

// whileOpen calls fn with the write lock held, unless the database is closed.
func (db *DB) whileOpen(fn func()) {
	l := db.lock()
	defer l.unlock()
	if !db.handle.Closed() {
		fn()
	}
}

// JournalCorruption returns the corruption that ended the replay of the journal, nil for none. The
// journal entries after it are lost.
func (db *DB) JournalCorruption() error { return db.log.JournalCorruption() }

// Close makes everything durable, waits for open views and closes the file. The file is closed
// even if Close returns an error. Closing again does nothing.
func (db *DB) Close() error {
	l := db.lock()
	db.cancel() // nothing starts in the background from now on
	l.unlock()
	db.active.Wait()
	l = db.lock()
	defer l.unlock()
	if db.handle.Closed() {
		return nil
	}
	l.closeViews()
	var err error
	if !db.opts.ReadOnly {
		err = db.committer.Close(db.log.Close)
	}
	err = errors.Join(err, db.handle.Close())
	if db.opts.AfterClose != nil {
		err = errors.Join(err, db.opts.AfterClose())
	}
	return err
}

// update commits a transaction that changes the buckets that readers see. A fold comes first,
// so that the memtable never hides the change.
func (db locked) update(fn func(*boltfile.Tx) error) error {
	if db.handle.Closed() {
		return store.ErrClosed
	}
	return db.log.Update(fn)
}

// baseView returns a view of the newest state, which is valid until something is put into the
// memtable. It takes no snapshot of the memtable: a snapshot would make the next change copy the
// nodes on its way to each cell.
func (db locked) baseView(id string) (*view, error) {
	return db.viewUnder(id, db.log.Live, (*view).load)
}

// writerView returns a baseView that stays open for the next batch of its collection: beginning a
// transaction costs a third as much as a small batch. closeViews closes the view before a commit, a
// swap and the close of the file, so it keeps no page from being used again. The caller does not
// close it, and sets its state and puts after a batch; all else in a view changes only with a commit.
func (db locked) writerView(id string) (*view, error) {
	if v := db.writerViews[id]; v != nil {
		return v, nil
	}
	v, err := db.baseView(id)
	if err == nil {
		db.writerViews[id] = v
	}
	return v, err
}

// closeViews closes the writer's views. The caller calls it before any change of the file.
func (db locked) closeViews() {
	for _, v := range db.writerViews {
		v.Close()
	}
	clear(db.writerViews)
}

// start runs fn in a goroutine that Close waits for, unless Close has begun or the database does no
// work in the background. fn must return soon after ctx ends.
func (db locked) start(fn func(ctx context.Context)) {
	if db.background && db.ctx.Err() == nil {
		db.active.Go(func() { fn(db.ctx) })
	}
}

// update is locked.update.
func (db *DB) update(fn func(*boltfile.Tx) error) error {
	l := db.lock()
	defer l.unlock()
	return l.update(fn)
}

// hidden takes the write lock and commits a transaction that changes nothing visible to readers.
func (db *DB) hidden(fn func(*boltfile.Tx) error) error {
	l := db.lock()
	defer l.unlock()
	if l.handle.Closed() {
		return store.ErrClosed
	}
	return l.log.Hidden(fn)
}

// file returns the options of the file.
func (opts Options) file() boltfile.Options {
	return boltfile.Options{MaxBytes: opts.MaxBytes, ReadOnly: opts.ReadOnly}
}
