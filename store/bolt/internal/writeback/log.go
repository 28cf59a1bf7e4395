package writeback

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// Log is the write-back of a database: a memtable that readers see at once, a journal that
// makes it durable, and the fold that moves it into the buckets. Its owner, the writer,
// serialises all calls but Snapshot, Err, Cells, JournalCorruption and Flushing.Commit.
type Log struct {
	opts Options
	mem  memtable

	dirty    map[string]int // addresses of cells that are not durable, with their bytes
	schedule schedule
	timer    clock.Timer // nil unless it is set
	timerAt  time.Time

	journal journal
	folded  time.Time // time of the newest fold

	mu  sync.Mutex // guards err; held for a few instructions
	err error      // of the newest flush
}

// journal describes the journal in the file.
type journal struct {
	bytes  int
	last   uint64 // sequence number of the newest entry, also after the journal was dropped
	damage error  // that ended the replay; nil for none
}

// Options are the dependencies and settings of a Log, all of them required.
type Options struct {
	Path      string // for errors
	Handle    *boltfile.Handle
	Committer *boltfile.Committer
	Codecs    *format.Codecs
	Clock     clock.WithDelayedExecution
	Logger    *slog.Logger

	// Interval is the flush interval, see Log.SetInterval.
	Interval time.Duration

	// OnTime is called by the timer, in a goroutine of its own. It calls FlushIfDue as the
	// writer, unless the database is closed.
	OnTime func()

	// These are called by the writer's goroutine.
	BeforeFlush func()      // before a flush; it may Put
	BeforeFold  func()      // before a fold that the journal's size or age, or Close, calls for; it may Put
	MayFold     func() bool // reports whether a flush may fold
	AfterFold   func()      // after a fold
}

// New returns the log of a file that was just opened. Replay comes next.
func New(opts Options) *Log {
	return &Log{
		opts: opts, mem: memtable{Overlay: *NoOverlay()}, dirty: map[string]int{}, schedule: schedule{interval: opts.Interval}, folded: opts.Clock.Now(),
	}
}

// errBehind is the error for changes while the file can't be written.
var errBehind = errors.New("changes wait to be made durable and there is no room for more")

// Reserve returns an error unless more cells may be put. It flushes if many bytes are dirty.
func (l *Log) Reserve() error {
	full, flush := l.schedule.pressure(l.opts.Clock.Now())
	err := l.Err()
	if full && err != nil {
		if err := l.packAll(); err != nil {
			return err
		}
		full, flush = l.schedule.pressure(l.opts.Clock.Now())
	}
	if flush {
		err = l.Flush() // unless full, the timer tries again after an error
	}
	if full && err != nil {
		return fmt.Errorf("%w: %w", errBehind, err)
	}
	return nil
}

// Pressed reports whether Reserve has to flush, or may return an error.
func (l *Log) Pressed() bool {
	full, flush := l.schedule.pressure(l.opts.Clock.Now())
	return full || flush
}

// Put makes cells visible, all at once; a later flush makes them durable. changes is false if the
// cells only advance a checkpoint.
func (l *Log) Put(cells map[string]Cell, changes bool) {
	l.mem.put(cells)
	more, failing := 0, l.Err() != nil
	for addr, c := range cells {
		n := c.size(addr, failing)
		more += n - l.dirty[addr]
		l.dirty[addr] = n
	}
	l.schedule.add(l.opts.Clock.Now(), more, changes)
	l.setTimer()
}

// SetInterval sets the flush interval, from the next change on.
func (l *Log) SetInterval(d time.Duration) { l.schedule.interval = d }

// Snapshot returns an immutable copy of the memtable. It copies at most the root of the tree.
func (l *Log) Snapshot() *Overlay { return l.mem.snapshot() }

// Live returns the memtable itself, which only the writer may use, until the next Put. It takes no
// snapshot, after which the next Put would have to copy the nodes on its way to each cell.
func (l *Log) Live() *Overlay { return &l.mem.Overlay }

// Cells returns the number of cells in the memtable.
func (l *Log) Cells() int { return l.mem.cells() }

// JournalBytes returns the size of the journal.
func (l *Log) JournalBytes() int { return l.journal.bytes }

// JournalCorruption returns the corruption that ended Replay, nil for none. The journal entries
// after it are lost.
func (l *Log) JournalCorruption() error {
	if l.journal.damage == nil {
		return nil
	}
	return &store.CorruptionError{Path: l.opts.Path, Reason: l.journal.damage.Error()}
}

// setTimer sets the timer to when a flush is due, unless it is set to an earlier time.
func (l *Log) setTimer() {
	at, ok := l.schedule.due()
	if !ok || l.timer != nil && !at.Before(l.timerAt) {
		return
	}
	l.stopTimer()
	l.timerAt = at
	l.timer = l.opts.Clock.AfterFunc(max(0, at.Sub(l.opts.Clock.Now())), l.opts.OnTime)
}

func (l *Log) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// BeginDue begins a flush if one is due, after the timer has fired; nil if there is nothing to commit. The
// caller calls Commit of the result, and then End.
func (l *Log) BeginDue() *Flushing {
	l.timer = nil
	due, ok := l.schedule.due()
	switch {
	case !ok: // there was a flush since the timer was set
		return nil
	case l.opts.Clock.Now().Before(due):
		l.setTimer()
		return nil
	}
	f, err := l.begin()
	if err != nil || f == nil {
		l.NoteFlush(err) // it is tried again
		return nil
	}
	return f
}

// Flush makes all cells durable: one value in the journal, in one small transaction. It folds if
// the journal has grown large or old.
func (l *Log) Flush() error {
	f, err := l.begin()
	if f != nil {
		return l.End(f, f.commit(l.opts.Committer.Commit))
	}
	l.NoteFlush(err)
	return err
}

// begin takes the dirty cells for a flush. If they are too many for the journal, it folds and returns nil.
func (l *Log) begin() (*Flushing, error) {
	if err := l.opts.Committer.Ready(); err != nil {
		return nil, err
	}
	if l.schedule.bytes > maxJournalBytes {
		return nil, l.Fold()
	}
	l.opts.BeforeFlush()
	return l.take()
}

// End ends a flush with the result of its Commit. It folds if the journal has grown large or old.
func (l *Log) End(f *Flushing, err error) error {
	err = l.settle(f, err)
	if err == nil {
		err = l.opts.Committer.ResyncMeta()
	}
	if err == nil && l.foldDue() && l.opts.MayFold() {
		l.opts.BeforeFold()
		err = l.Fold()
	}
	l.NoteFlush(err)
	return err
}

// NoteFlush records the result of a flush. After an error it sets the timer for the next try.
func (l *Log) NoteFlush(err error) {
	l.mu.Lock()
	was := l.err
	l.err = err
	l.mu.Unlock()
	if err == nil {
		l.schedule.succeeded()
		if was != nil {
			l.opts.Logger.Info("the database can be written again")
		}
		return
	}
	if was == nil {
		l.opts.Logger.Error("the database can't be written; what changes is kept in memory, and it is tried again", "error", err)
	}
	l.schedule.failed(l.opts.Clock.Now())
	l.stopTimer()
	l.setTimer()
}

// Err returns the error of the newest flush.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close folds, or at least appends to the journal, and stops the timer.
func (l *Log) Close() error {
	if err := l.opts.Committer.Ready(); err != nil {
		l.stopTimer()
		if len(l.dirty) == 0 {
			return nil
		}
		return err
	}
	l.opts.BeforeFold()
	l.stopTimer() // BeforeFold's puts have set it
	err := l.Fold()
	if err != nil {
		// An append needs less disk space than a fold.
		err = errors.Join(err, l.append())
	}
	return err
}
