package bolt

import "github.com/snapcache/snapcache/store"

// Fold lets tests fold when they want.
func (db *DB) Fold() error {
	db.write.Lock()
	defer db.write.Unlock()
	if db.isClosed() {
		return store.ErrClosed
	}
	return db.fold()
}

// JournalBytes lets tests see how much the journal holds.
func (db *DB) JournalBytes() int {
	db.write.Lock()
	defer db.write.Unlock()
	return db.journalBytes
}

// CompactWith is Compact on a disk with as much room as free says.
var CompactWith = compact

// Seal and Unseal let tests change a collection's small values.
var (
	Seal   = seal
	Unseal = unseal
)

// Sign lets tests change a file through bbolt.
var Sign = sign
