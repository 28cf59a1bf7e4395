package bolt

import (
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
)

// locked is a database whose write lock is held. A function that needs the lock is a method of
// locked, or has a parameter of this type.
type locked struct{ *DB }

func (db *DB) lock() locked {
	db.write.Lock()
	return locked{db}
}

func (db locked) unlock() { db.write.Unlock() }

// update commits a transaction that changes the buckets that readers see. A fold comes first,
// so that the memtable never hides the change.
func (db locked) update(fn func(*boltfile.Tx) error) error {
	if db.handle.Closed() {
		return store.ErrClosed
	}
	return db.log.Update(fn)
}

// baseView returns a view of the newest state, which is valid until something is put into the
// memtable. It takes no snapshot of the memtable: a snapshot would make the next change copy the
// nodes on its way to each cell.
func (db locked) baseView(id string) (*view, error) {
	return db.viewUnder(id, db.log.Live, (*view).load)
}

// writerView returns a baseView that stays open for the next batch of its collection:
// beginning a transaction costs a third as much as a small batch. closeViews closes the view
// before a commit, a swap and the close of the file, so it keeps no page from being used
// again. The caller does not close it, and sets its state after a batch; all else in a view
// changes only with a commit.
func (db locked) writerView(id string) (*view, error) {
	if v := db.writerViews[id]; v != nil {
		return v, nil
	}
	v, err := db.baseView(id)
	if err == nil {
		db.writerViews[id] = v
	}
	return v, err
}

// closeViews closes the writer's views. The caller calls it before any change of the file.
func (db locked) closeViews() {
	for _, v := range db.writerViews {
		v.Close()
	}
	clear(db.writerViews)
}
