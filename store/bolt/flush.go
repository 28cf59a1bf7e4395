package bolt

import (
	"errors"
	"fmt"
	"time"
)

// maxUnflushedBytes is how much may wait in memory while the file refuses to take
// it. Past that Apply fails, and whoever applies has to wait.
const maxUnflushedBytes = 16 << 20

// An append to the journal costs some five pages however little it carries, so what
// is flushed with more than itself costs less flash.
const (
	// companyBytes is how much has to wait for a flush to come as soon as the flush
	// interval has passed: of so much, what an append costs besides is a tenth.
	companyBytes = 256 << 10

	// patience is how many flush intervals less than that waits for company.
	patience = 14

	// maxPatience bounds the waiting of changes where the flush interval does not. The
	// apiserver remembers some 75 s of what happened: a process that is killed and comes
	// back at once has to find there what it had not flushed, or it has to list.
	maxPatience = 70 * time.Second
)

// errBehind says that the file can't take what was applied.
var errBehind = errors.New("changes wait to be made durable and there is no room for more")

// room says whether more may be applied. The caller holds the write lock.
func (db *DB) room() error {
	switch {
	case db.dirtyBytes >= maxUnflushedBytes:
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
		if _, ok := db.dirty[addr]; !ok {
			db.dirty[addr] = struct{}{}
		}
		n := len(c.value)
		if c.packer != nil {
			n /= packRatio
		}
		db.dirtyBytes += len(addr) + n
	}
	now := db.opts.Clock.Now()
	if db.dirtySince.IsZero() {
		db.dirtySince = now
	}
	if changes && !db.dirtyChanges {
		db.dirtyChanges = true
		db.dirtySince = now // checkpoints that waited for company have it now
	}
	db.flushAt(db.flushDue())
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
	if db.isClosed() {
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
	if err := db.flushLocked(); err != nil {
		db.flushAt(db.opts.Clock.Now().Add(db.opts.FlushInterval))
	}
}

func (db *DB) noteFlush(err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.flushErr = err
}

func (db *DB) flushError() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.flushErr
}
