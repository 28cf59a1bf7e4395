package bolt

import (
	"errors"
	"fmt"
	"time"
)

// maxUnflushedBytes is how much may wait in memory while the file refuses to take
// it. Past that Apply fails, and whoever applies has to wait.
const maxUnflushedBytes = 16 << 20

// A flush that failed is tried again after firstRetry, then after twice as long each time
// up to maxRetry.
const (
	firstRetry = time.Second
	maxRetry   = time.Minute
)

// An append to the journal costs some five pages however little it carries, so what
// is flushed with more than itself costs less flash.
const (
	// companyBytes is how much has to wait for a flush to come as soon as the flush
	// interval has passed: of so much, what an append costs besides is a tenth.
	companyBytes = 256 << 10

	// patience is how many flush intervals less than that waits for company.
	patience = 12

	// maxPatience bounds the waiting of changes where the flush interval does not. The
	// apiserver remembers some 75 s of what happened: a process that is killed and comes
	// back at once has to find there what it had not flushed, or it has to list.
	maxPatience = time.Minute
)

// errBehind says that the file can't take what was applied.
var errBehind = errors.New("changes wait to be made durable and there is no room for more")

// room says whether more may be applied. The caller holds the write lock.
func (db *DB) room() error {
	switch {
	case db.dirtyBytes >= maxUnflushedBytes:
		if err := db.flushError(); err != nil && db.opts.Clock.Now().Before(db.timerAt) {
			return fmt.Errorf("%w: %w", errBehind, err)
		}
		if err := db.flushLocked(); err != nil {
			return fmt.Errorf("%w: %w", errBehind, err)
		}
	case db.dirtyBytes >= flushBytes && db.flushError() == nil:
		// What fails here is tried again by the timer, and told by FlushError.
		_ = db.flushLocked()
	}
	return nil
}

// soil notes that cells in the memtable are not durable, and sees to it that they
// will be. The caller holds the write lock.
func (db *DB) soil(cells map[string]cell, changes bool) {
	for addr, c := range cells {
		n := len(c.value)
		if c.packer != nil {
			n /= packRatio
		}
		n += len(addr)
		db.dirtyBytes += n - db.dirty[addr]
		db.dirty[addr] = n
	}
	now := db.opts.Clock.Now()
	if db.dirtySince.IsZero() {
		db.dirtySince = now
	}
	if changes && !db.dirtyChanges {
		db.dirtyChanges = true
		db.dirtySince = now // checkpoints that waited for company have it now
	}
	if db.flushError() == nil {
		db.flushAt(db.flushDue())
	}
}

// flushDue returns when what is not durable is to be flushed. The caller holds the
// write lock.
func (db *DB) flushDue() time.Time {
	wait := db.opts.FlushInterval
	switch {
	case !db.dirtyChanges:
		wait *= patience // freshness alone is not worth a write
	case db.dirtyBytes < companyBytes:
		wait = max(wait, min(wait*patience, maxPatience))
	}
	return db.dirtySince.Add(wait)
}

// flushAt sets the timer, unless it is set to an earlier time.
func (db *DB) flushAt(at time.Time) {
	if db.timer != nil && !at.Before(db.timerAt) {
		return
	}
	if db.timer != nil {
		db.timer.Stop()
	}
	db.timerAt = at
	db.timer = db.opts.Clock.AfterFunc(max(0, at.Sub(db.opts.Clock.Now())), db.flushOnTime)
}

// flushOnTime is what the timer calls.
func (db *DB) flushOnTime() {
	db.write.Lock()
	defer db.write.Unlock()
	db.timer = nil
	if db.handle.Closed() {
		return
	}
	if db.flushError() == nil {
		// There may have been a flush since the timer was set.
		if len(db.dirty) == 0 {
			return
		}
		if due := db.flushDue(); db.opts.Clock.Now().Before(due) {
			db.flushAt(due)
			return
		}
	}
	_ = db.flushLocked() // what fails is told, and tried again
}

// noteFlush tells whether all that was applied can be made durable, and where it can't
// sets the timer for the next try. The caller holds the write lock.
func (db *DB) noteFlush(err error) {
	db.mu.Lock()
	was := db.flushErr
	db.flushErr = err
	db.mu.Unlock()
	if err == nil {
		db.retryIn = 0
		if was != nil {
			db.opts.Logger.Info("the database can be written again")
		}
		return
	}
	if was == nil {
		db.opts.Logger.Error("the database can't be written; what changes is kept in memory, and it is tried again", "error", err)
	}
	db.retryIn = min(max(2*db.retryIn, firstRetry), maxRetry)
	if db.timer != nil {
		db.timer.Stop()
		db.timer = nil
	}
	db.flushAt(db.opts.Clock.Now().Add(db.retryIn))
}

func (db *DB) flushError() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.flushErr
}
