package bolt

import "time"

// Adjust changes the options that can change while the database is open. flushInterval is in force
// from the next change on; if historyRetention or historyBytes became less, the history is trimmed
// within the hour. 0 stands for the default.
func (db *DB) Adjust(flushInterval, historyRetention time.Duration, historyBytes int64) {
	l := db.lock()
	defer l.unlock()
	db.opts.FlushInterval, db.opts.HistoryRetention, db.opts.HistoryBytes = flushInterval, historyRetention, historyBytes
	db.opts.setDefaults()
	db.log.SetInterval(db.opts.FlushInterval)
}
