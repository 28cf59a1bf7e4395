package bolt

import "time"

// Adjust changes what of the Options can change while the database is open: how long
// changes wait before they are durable, from the next change on, and how much is
// remembered of what changed; what is too much is forgotten within the hour. 0 is the
// default of each.
func (db *DB) Adjust(flushInterval, historyRetention time.Duration, historyBytes int64) {
	l := db.lock()
	defer l.unlock()
	db.opts.FlushInterval, db.opts.HistoryRetention, db.opts.HistoryBytes = flushInterval, historyRetention, historyBytes
	db.opts.setDefaults()
	db.log.SetInterval(db.opts.FlushInterval)
}
