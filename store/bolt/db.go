package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// Format is the version of the file format that this package writes, and EncryptedFormat
// that of encrypted files. There is no other yet.
const (
	Format          = format.PlainFormat
	EncryptedFormat = format.EncryptedFormat
)

const (
	// DefaultFlushInterval is the flush interval where Options do not say.
	DefaultFlushInterval = 5 * time.Second

	// DefaultViewLimit is how long a view may stay open where Options do not say.
	DefaultViewLimit = 30 * time.Second

	// DefaultMaxBytes is the quota of a file where Options give none.
	DefaultMaxBytes = 1 << 30
)

// Options are the settings of a database. The zero value works.
type Options struct {
	// MaxBytes is the file's quota; writes that would grow it further fail.
	// 0 is DefaultMaxBytes.
	MaxBytes int64

	// ReadOnly opens an existing file for reading only, beside other readers.
	ReadOnly bool

	// Keys are what the file is encrypted with. A file with another key than Keys.Key is
	// rewritten in the background, once a collection was opened.
	Keys Keyring

	// Writer names the program's version, for the file's meta bucket.
	Writer string

	// FlushInterval is after how long changes are made durable where there are enough
	// of them, 256 KiB. Fewer wait for company up to twelve times as long, but no more
	// than 60 s unless this is more; a change of the checkpoint alone waits twelve
	// times as long. What a crash loses is what the watch sends again. 0 is 5 s.
	FlushInterval time.Duration

	// ViewLimit is how long a view may stay open before it ends with
	// store.ErrViewExpired: an open view keeps pages of the file from being used
	// again, so that the file grows with every change. 0 is 30 s.
	ViewLimit time.Duration

	// HistoryRetention and HistoryBytes bound the history of each collection: what is
	// older or more is forgotten within the hour. 0 is
	// store.DefaultHistoryRetention and store.DefaultHistoryBytes.
	HistoryRetention time.Duration
	HistoryBytes     int64

	// Clock is the time; nil is the real one.
	Clock clock.WithDelayedExecution

	// ReplaceBudget is how many bytes of compressed records a replacement keeps in
	// memory before it fills a new generation on disk. 0 is 2 MiB.
	ReplaceBudget int

	// Damaged is told of each read of a record that fails its check, by the goroutine
	// that reads: the same record may come often. It must not block and not use the
	// database. nil is for nobody.
	Damaged func(collection, key string)

	// Logger is told what the database does by itself, in the background; nil for
	// nowhere.
	Logger *slog.Logger

	hooks *hooks // nil in production
}

// setDefaults sets what [DB.Adjust] can change.
func (opts *Options) setDefaults() {
	if opts.FlushInterval == 0 {
		opts.FlushInterval = DefaultFlushInterval
	}
	if opts.HistoryRetention == 0 {
		opts.HistoryRetention = store.DefaultHistoryRetention
	}
	if opts.HistoryBytes == 0 {
		opts.HistoryBytes = store.DefaultHistoryBytes
	}
}

// DB is an open database. See [store.DB].
type DB struct {
	path   string
	opts   Options
	codecs *format.Codecs
	hooks  hooks
	handle *boltfile.Handle
	meta   metaCache

	write       sync.Mutex // held for every change; guards what follows
	committer   *boltfile.Committer
	log         *writeback.Log
	writerViews map[string]*view // by collection, see locked.writerView
	historian   historian
	indexer     indexer
	compactor   compactor
	rekeyer     rekeyer

	background *background
}

var _ store.DB = (*DB)(nil)

// Open opens the database at path and creates it where there is none, with its
// directory. Errors wrap store.ErrLocked, ErrNoStore (read-only), ErrForeign,
// ErrNewerFormat, ErrKey, ErrNetworkFS, ErrTooLarge or are a *store.CorruptionError; the file is then unchanged.
func Open(path string, opts Options) (*DB, error) { return open(path, opts, nil) }

// open is Open with a look at the file before anything in it is followed. look may
// be nil; its error ends the opening.
func open(path string, opts Options, look func(*boltfile.File) error) (*DB, error) {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	if opts.ReplaceBudget == 0 {
		opts.ReplaceBudget = 2 << 20
	}
	opts.setDefaults()
	if opts.ViewLimit == 0 {
		opts.ViewLimit = DefaultViewLimit
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	hooks := opts.hooks.withDefaults()
	if !opts.ReadOnly {
		if err := boltfile.RefuseNetwork(path, hooks.networkFS); err != nil {
			return nil, err
		}
	}
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
		// Not ErrForeign: nobody should set a directory or a device aside.
		return nil, fmt.Errorf("open database: %s is not a regular file: name another path", path)
	case info.Size() == 0:
		return nil, fmt.Errorf("%s: %w: the file is empty", path, store.ErrForeign)
	}
	if err := boltfile.CheckNotTruncated(path); err != nil {
		return nil, err
	}
	f, err := boltfile.Open(path, opts.file())
	if err != nil {
		return nil, err
	}
	if look != nil {
		err = look(f)
	}
	if err == nil {
		err = f.CheckMeta()
	}
	if err == nil {
		err = f.Unlock(opts.Keys)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	db := &DB{
		path: path, opts: opts, hooks: hooks, codecs: format.NewCodecs(), handle: boltfile.NewHandle(f, opts.Logger),
		writerViews: map[string]*view{}, historian: historian{trimmedAt: opts.Clock.Now()}, indexer: newIndexer(), background: newBackground(),
	}
	writer := locked{db} // the committer and the log call back with the lock held
	db.committer = boltfile.NewCommitter(boltfile.CommitterOptions{
		Path: path, Handle: db.handle, Clock: opts.Clock, ViewLimit: opts.ViewLimit,
		BeforeCommit: writer.closeViews, AfterUncertain: func(err error) { db.log.NoteFlush(err) },
	})
	db.log = writeback.New(writeback.Options{
		Path: path, Handle: db.handle, Committer: db.committer, Codecs: db.codecs, Clock: opts.Clock, Logger: opts.Logger,
		Interval: opts.FlushInterval, SliceBytes: hooks.sliceBytes, OnTime: db.flushOnTime,
		Hooks: writeback.Hooks{
			BeforeFlush: writer.trimIfDue, BeforeFold: writer.trimHistories, MayFold: func() bool { return !db.compactor.running },
			AfterFold: writer.compactIfDue, FoldStep: hooks.foldStep,
		},
	})
	if err := db.begin(); err != nil {
		db.codecs.Close()
		return nil, errors.Join(err, db.handle.Close())
	}
	return db, nil
}

// begin reads what is needed before anything else and repairs what a crash left.
func (db *DB) begin() error {
	if err := db.log.Replay(); err != nil || db.opts.ReadOnly {
		return err
	}
	if db.log.JournalDamage() != nil {
		// Nothing may be appended behind the damage.
		if err := db.log.Fold(); err != nil {
			return err
		}
	}
	// The lock is held: no process uses what a compaction left. If it can't be removed, the
	// next compaction tries again.
	if file, err := filepath.EvalSymlinks(db.path); err == nil {
		_ = os.Remove(file + compactSuffix)
	}
	return db.dropLeftovers()
}

// Collections returns what is stored, ordered by ID.
func (db *DB) Collections() ([]store.Info, error) {
	var infos []store.Info
	err := db.view(func(tx *boltfile.Tx) error {
		all := tx.Bucket(format.BucketCollections)
		return all.ForEachBucket(func(id []byte) error {
			info, err := readInfo(db.path, string(id), all.Bucket(id))
			if err != nil {
				return err
			}
			infos = append(infos, info)
			return nil
		})
	})
	return infos, err
}

// Drop deletes a collection. Dropping an absent one does nothing.
func (db *DB) Drop(id string) error {
	err := db.update(func(tx *boltfile.Tx) error {
		if err := dropDicts(tx, id); err != nil {
			return err
		}
		delete(db.indexer.spilling, id)
		return tx.Bucket(format.BucketCollections).DeleteBucket([]byte(id))
	})
	if err != nil {
		return err
	}
	return db.resyncMeta()
}

// Stats returns sizes and write totals.
func (db *DB) Stats() store.Stats {
	s := store.Stats{Path: db.path, FlushError: db.log.Err()}
	s.Commits, s.CommitTime = db.committer.Stats()
	if info, err := os.Stat(db.path); err == nil {
		s.FileBytes = info.Size()
	}
	s.Compactions, s.CompactTime, s.CompactedBytes = db.compactor.stats()
	file := db.handle.Stats(db.opts.Keys)
	s.EncryptionKey, s.EncryptionDue = file.KeyID, file.NeedsRekey && !db.opts.ReadOnly
	s.PagesWritten, s.SyncTime = file.PagesWritten, file.SyncTime
	s.ReadFaults, s.ReadError = file.ReadFaults, file.ReadError
	return s
}

// Flush makes what was applied durable: one value in the journal for all collections, in
// one small transaction. It folds if the journal has grown large or old.
func (db *DB) Flush() error {
	l := db.lock()
	defer l.unlock()
	if db.handle.Closed() {
		return store.ErrClosed
	}
	return db.log.Flush()
}

// flushOnTime is called by the timer of the log.
func (db *DB) flushOnTime() {
	l := db.lock()
	defer l.unlock()
	if !db.handle.Closed() {
		db.log.FlushIfDue()
	}
}

// JournalDamage returns the damage that was met when the journal was replayed,
// nil for none. What follows it in the journal was given up.
func (db *DB) JournalDamage() error { return db.log.JournalDamage() }

// Close makes everything durable, waits for open views and closes the file. The
// file is closed whatever the error. Closing twice does nothing.
func (db *DB) Close() error {
	db.background.stop()
	l := db.lock()
	defer l.unlock()
	if db.handle.Closed() {
		return nil
	}
	l.closeViews()
	var err error
	if !db.opts.ReadOnly {
		db.committer.MarkClosing()
		err = db.log.Close()
		err = errors.Join(err, db.committer.MarkCleanShutdown(), db.committer.ResyncMeta())
	}
	err = errors.Join(err, db.handle.Close())
	db.codecs.Close()
	return err
}

// update is locked.update.
func (db *DB) update(fn func(*boltfile.Tx) error) error {
	l := db.lock()
	defer l.unlock()
	return l.update(fn)
}

// hidden commits a transaction that changes nothing that a reader sees.
func (db *DB) hidden(fn func(*boltfile.Tx) error) error {
	l := db.lock()
	defer l.unlock()
	if l.handle.Closed() {
		return store.ErrClosed
	}
	return l.log.Hidden(fn)
}

// view runs fn in a read transaction on the file, without the memtable.
func (db *DB) view(fn func(*boltfile.Tx) error) error { return db.handle.View(fn) }

// resyncMeta makes durable what was committed.
func (db *DB) resyncMeta() error {
	l := db.lock()
	defer l.unlock()
	return db.committer.ResyncMeta()
}

// file returns the options of the file.
func (opts Options) file() boltfile.Options {
	return boltfile.Options{MaxBytes: opts.MaxBytes, ReadOnly: opts.ReadOnly, MaxMapBytes: opts.hooks.withDefaults().maxMapBytes}
}
