package bolt

import (
	"math"
	"time"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/bolt/internal/history"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

const (
	// trimEntries is how many entries of one history are trimmed at a time, at most. The rest is
	// trimmed the next time.
	trimEntries = 20_000

	// trimInterval is how long a history may grow past its bounds if there is no fold and no restart.
	trimInterval = time.Hour

	// clockSlack is by how much the wall clock and the monotonic one may differ between two trims: time
	// daemons adjust the wall clock by small steps.
	clockSlack = time.Minute
)

// historian decides when the histories of a database are trimmed, and how far. The write lock guards
// it.
type historian struct {
	trimmedAt time.Time // or when the database was opened; with the monotonic reading

	// steadySince is when the database was opened, or since when the wall clock has not been set.
	steadySince time.Time

	// retention and bytes are the bounds of each history, see Options.
	retention time.Duration
	bytes     int64
}

func newHistorian(opts Options) historian {
	now := opts.Clock.Now()
	return historian{trimmedAt: now, steadySince: now, retention: opts.HistoryRetention, bytes: opts.HistoryBytes}
}

// look notes whether the wall clock has been set since the last trim.
func (h *historian) look(now time.Time) {
	if d := now.Round(0).Sub(h.trimmedAt.Round(0)) - now.Sub(h.trimmedAt); d.Abs() > clockSlack {
		h.steadySince = now
	}
	h.trimmedAt = now
}

// span returns the first and the last time, in seconds since 1970, of the entries that are not too old.
// An entry that a wrong clock has dated may seem older than it is. So the time bounds nothing until the
// database was open for the retention, and the clock was not set meanwhile: all entries of that time
// have right dates, as far as dates differ, and every other one is older.
func (h *historian) span(now time.Time) (oldest, newest int64) {
	if now.Sub(h.steadySince) < h.retention {
		return math.MinInt64, math.MaxInt64
	}
	return now.Add(-h.retention).Unix(), now.Add(clockSlack).Unix()
}

// due reports whether a flush is to trim the histories. A fold trims them anyway.
func (h *historian) due(now time.Time) bool { return now.Sub(h.trimmedAt) >= trimInterval }

// trimIfDue trims the histories if that is due.
func (db locked) trimIfDue() {
	if db.historian.due(db.opts.Clock.Now()) {
		db.trimHistories()
	}
}

// trimHistories trims each collection's history to its bounds. The log calls it before a flush, a
// fold or its end, so that it costs no write of its own.
func (db locked) trimHistories() {
	db.historian.look(db.opts.Clock.Now())
	var ids []string
	err := db.handle.View(func(tx *boltfile.Tx) error {
		return eachCollection(tx, func(id string, _ *boltfile.Bucket) error { ids = append(ids, id); return nil })
	})
	if err != nil {
		return // the fold fails with the same error
	}
	for _, id := range ids {
		cells, err := db.trimmed(id)
		if err != nil || len(cells) == 0 {
			continue // a corrupt history stays as it is: reading it returns the error
		}
		db.log.Put(cells, true)
	}
}

// trimmed returns the cells that bring a collection's history to its bounds, none if nothing is due.
// At most trimEntries are removed at a time.
func (db locked) trimmed(id string) (cells map[string]writeback.Cell, err error) {
	v, err := db.newView(id)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	err = v.tx.Read(func() error {
		oldest, newest := db.historian.span(db.opts.Clock.Now())
		cells, err = v.trim(oldest, newest, db.historian.bytes)
		return err
	})
	return cells, err
}

func (v *view) trim(oldest, newest, maxBytes int64) (map[string]writeback.Cell, error) {
	head, err := v.head()
	if err != nil {
		return nil, err
	}
	cur, err := v.cursor(v.path(format.BucketFeed))
	if err != nil {
		return nil, err
	}
	e := &edit{base: v, cells: map[string]writeback.Cell{}}
	t := feedTable{e.table(v.path(format.BucketFeed)...), e.table(v.path(format.BucketTombs)...)}
	was := head
	for k, b := cur.Seek(nil); k != nil && len(e.cells) < trimEntries; k, b = cur.Next(k) {
		rv, entry, err := format.DecodeFeedEntry(k, b)
		if err != nil {
			// The resourceVersion can still be read: it is the key.
			if rv, _ = history.RV(k); rv == "" {
				rv, _ = history.GapRV(k)
			}
			if rv == "" {
				return nil, err
			}
		}
		if !head.Due(rv, entry, oldest, maxBytes) && entry.Time <= newest {
			break
		}
		n, err := t.Delete(k)
		if err != nil {
			return nil, err
		}
		head.Trim(rv, entry, n)
	}
	if head == was {
		return nil, nil
	}
	return e.cells, putJSON(e.table(v.base...), v.id, format.KeyHistory, head)
}
