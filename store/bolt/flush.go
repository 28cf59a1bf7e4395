package bolt

import (
	"errors"
	"fmt"
	"time"
)

// maxUnflushedBytes is how much may wait in memory while the file refuses to take
// it. Past that Apply fails, and whoever applies has to wait.
const maxUnflushedBytes = 16 << 20

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
	wait := db.opts.FlushInterval
	if !db.dirtyChanges {
		wait *= checkpointPatience
	}
	db.flushAt(db.dirtySince.Add(wait))
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
