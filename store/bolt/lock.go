package bolt

import (
	"slices"
	"sync"

	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// writeLock is the lock of a database's writers. It guards its fields.
type writeLock struct {
	sync.Mutex
	flushing bool      // a flush is being committed, without the lock
	flushed  sync.Cond // its end
}

// locked is a database whose write lock is held. A function that needs the lock is a method of
// locked, or has a parameter of this type.
type locked struct{ *DB }

// lock takes the write lock for changes of any kind. It waits for the commit of a flush.
func (db *DB) lock() locked {
	db.write.Lock()
	for db.write.flushing {
		db.write.flushed.Wait()
	}
	return locked{db}
}

// lockBeside takes the write lock for changes and reads in memory, also while a flush is being committed, for
// as long as the disk takes. The holder must not commit while flushing is set.
func (db *DB) lockBeside() locked {
	db.write.Lock()
	return locked{db}
}

// lockToPut is lockBeside for a caller of Log.Reserve. It waits for the commit if Reserve would need one too.
func (db *DB) lockToPut() locked {
	l := db.lockBeside()
	for db.write.flushing && db.log.Pressed() {
		db.write.flushed.Wait()
	}
	return l
}

func (db locked) unlock() {
	if db.write.flushing {
		db.closeViews() // a commit that maps more of the file waits for open ones
	}
	db.write.Unlock()
}

// flushOnTime flushes if it is due. The log's timer calls it. Changes are compressed first, a few at a
// time, and then committed without the write lock, so that others that come meanwhile are not held up.
func (db *DB) flushOnTime() {
	var unpacked []string
	db.whileOpen(func() { unpacked = db.log.Unpacked() })
	for addrs := range slices.Chunk(unpacked, writeback.PackCells) {
		db.whileOpen(func() { _ = db.log.Pack(addrs) }) // the flush returns its error
	}
	if f := db.beginFlush(); f != nil {
		db.endFlush(f, f.Commit())
	}
}

// beginFlush begins a flush if it is due, and leaves its commit to the caller; nil if there is none.
func (db *DB) beginFlush() (f *writeback.Flushing) {
	db.whileOpen(func() {
		if f = db.log.BeginDue(); f != nil {
			db.committer.BeforeCommit()
			db.write.flushing = true
		}
	})
	return f
}

// endFlush ends a flush with the result of its commit.
func (db *DB) endFlush(f *writeback.Flushing, err error) {
	l := db.lockBeside()
	defer l.unlock()
	l.write.flushing = false
	l.write.flushed.Broadcast()
	_ = l.log.End(f, err) // Err has the error, and it is tried again
}
