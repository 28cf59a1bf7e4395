package boltfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// Committer commits write transactions to the current file of a handle, and never writes on top of
// a commit that may not be on the disk. The caller serialises all calls but Stats, and sets the
// exported fields, all of which are required but Prepare.
type Committer struct {
	Path   string // of the database, which may be a link to the file
	Handle *Handle
	Clock  clock.PassiveClock

	// ViewLimit is how long a read transaction may be open.
	ViewLimit time.Duration

	// BeforeCommit ends the writer's own read transactions. It is called before each commit.
	BeforeCommit func()

	// Prepare, unless it is nil, has to succeed before anything is written, see Ready.
	Prepare func() error

	// AfterUncertain is called after a commit whose last fsync failed, with the error of the
	// first attempt to repeat it, nil if that was successful.
	AfterUncertain func(err error)

	uncertain  *uncertainCommit // nil if everything that readers see is durable
	uncertainN int
	dirSynced  bool // the rename that gave the file its name is durable
	closing    bool

	commits    atomic.Int64
	commitTime atomic.Int64 // nanoseconds
}

// uncertainCommit is a transaction whose last fsync failed: this process sees it, but it may not be
// on the disk. Only bbolt's meta page may be missing there, because the data was synced before. The
// kernel considers the page written and does not write it again; it may drop the page at any time
// and read the old one.
//
// So before anything else is written, the same page is written again and synced. Until then a power
// cut leaves either state, and both are consistent.
type uncertainCommit struct {
	page  []byte // bbolt's newest meta page
	at    int64  // offset of the page in the file
	cause error

	// bbolt no longer knows which pages the transaction freed, and would use them again at once.
	// Views that began before the transaction still read them.
	viewed bool
	since  time.Time
}

// errViewed means that views from before a failed sync are still open.
var errViewed = errors.New("what was read before it has to end first")

// errNotReady means that Ready has to succeed first.
var errNotReady = errors.New("the file can't be written yet")

// Ready calls Prepare, until it has succeeded once. Prepare's own commits need no other
// preparation. Ready must be called before each commit, and not within one.
func (c *Committer) Ready() error {
	prepare := c.Prepare
	if prepare == nil {
		return nil
	}
	c.Prepare = nil
	err := prepare()
	if err != nil {
		c.Prepare = prepare
	}
	return err
}

// Commit runs fn in a write transaction. On nil the change is visible, but durable only once
// ResyncMeta returns nil. On an error it is neither, provided that the file can still be read.
func (c *Committer) Commit(fn func(*Tx) error) error {
	c.BeforeCommit()
	uncertain := c.uncertainN
	err := c.CommitBeside(fn)
	if c.uncertainN > uncertain {
		c.AfterUncertain(c.ResyncMeta())
	}
	return err
}

// CommitBeside is Commit without the calls of BeforeCommit and AfterUncertain, which the caller makes up for:
// it calls nothing of the writer, so that changes in memory can go on meanwhile.
func (c *Committer) CommitBeside(fn func(*Tx) error) error {
	if c.Prepare != nil {
		return errNotReady
	}
	if err := c.ResyncMeta(); err != nil {
		return err
	}
	start := time.Now()
	f := c.Handle.current()
	id := 0 // the transaction's, set when only the commit remains
	err := f.Update(func(tx *Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		// If a fold is half done, the shutdown is not clean, even if this is the last commit.
		if err := Stamp(tx, c.closing && FoldInProgress(tx) == 0); err != nil {
			return err
		}
		id = tx.ID()
		return nil
	})
	if err != nil && id != 0 {
		err = c.noteUncertain(f, id, err)
	}
	if err == nil {
		c.commits.Add(1)
		c.commitTime.Add(int64(time.Since(start)))
	}
	return err
}

// noteUncertain checks whether transaction id, whose commit failed with cause, is visible. It
// returns nil if so, and records the commit as uncertain.
func (c *Committer) noteUncertain(f *File, id int, cause error) error {
	// bbolt's two meta pages take turns. They are copied from the mapping: reading the
	// file might bring an old one into it.
	u := &uncertainCommit{page: make([]byte, PageSize), at: int64(id%2) * PageSize, cause: cause, since: c.Clock.Now()}
	visible := false
	if err := f.View(func(tx *Tx) error {
		if visible = tx.ID() == id; visible {
			data := f.bolt.Info().Data
			copy(u.page, unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&data))), 2*PageSize)[u.at:])
		}
		return nil
	}); err != nil {
		return errors.Join(cause, err)
	}
	if !visible {
		return cause // it was rolled back
	}
	u.viewed = f.OpenReads() > 0
	c.uncertain = u
	c.uncertainN++
	return nil
}

// ResyncMeta makes all commits durable, and then the rename that gave the file its name: until that is
// on the disk, a power cut may bring the old file back. Nothing is written before ResyncMeta succeeds.
func (c *Committer) ResyncMeta() error {
	if u := c.uncertain; u != nil {
		f := c.Handle.current()
		if u.viewed && f.OpenReads() > 0 && c.Clock.Since(u.since) < c.ViewLimit {
			return fmt.Errorf("after a failed sync: %w (it was: %w)", errViewed, u.cause)
		}
		_, err := f.raw.WriteAt(u.page, u.at)
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return fmt.Errorf("after a failed sync: %w", err)
		}
		c.uncertain = nil
	}
	if c.dirSynced {
		return nil
	}
	path, err := filepath.EvalSymlinks(c.Path)
	if err == nil {
		err = files.SyncDir(filepath.Dir(path))
	}
	c.dirSynced = err == nil
	return err
}

// Swap makes f, which is synced and was renamed to the database's path, the current file.
// The rename is durable only once ResyncMeta returns nil.
func (c *Committer) Swap(f *File) {
	c.BeforeCommit()
	c.Handle.swap(f)
	c.uncertain, c.dirSynced = nil, false
}

// UncertainCommits returns how many commits had a last fsync that failed.
func (c *Committer) UncertainCommits() int { return c.uncertainN }

// Close calls last, for the last changes, and marks the file as shut down cleanly: by the stamp of the
// last commit or, if there is none, by a transaction that does nothing else.
func (c *Committer) Close(last func() error) error {
	c.closing = true
	err := last()
	shutdown := PowerLoss
	readErr := c.Handle.View(func(tx *Tx) error { shutdown = shutdownOf(tx); return nil })
	if c.Prepare != nil {
		return errors.Join(err, readErr) // nothing was written
	}
	if readErr == nil && shutdown != Clean {
		readErr = c.Commit(func(*Tx) error { return nil })
	}
	return errors.Join(err, readErr, c.ResyncMeta())
}

// Stats returns the number of commits and the time that they took.
func (c *Committer) Stats() (commits int64, took time.Duration) {
	return c.commits.Load(), time.Duration(c.commitTime.Load())
}

// Epoch returns the number of rewrites of the file's buckets, see the package comment of
// store/bolt.
func Epoch(tx *Tx) uint64 { return metaNumber(tx, format.KeyEpoch) }

// FoldInProgress returns the sequence number of the newest journal entry that an unfinished fold
// needs, 0 for none.
func FoldInProgress(tx *Tx) uint64 { return metaNumber(tx, format.KeyFolding) }
