package bolt

import (
	"fmt"
	"runtime/debug"

	"github.com/snapcache/snapcache/store"
)

// guard makes a page of the mapping that the disk does not give back a panic of this
// goroutine, and not the end of the process. It goes in front of what recovers, as its
// argument, so that it comes first; it returns err.
func guard(err *error) *error {
	debug.SetPanicOnFault(true)
	return err
}

// recoverCorruption turns bbolt's assertions about a damaged file into an error.
func recoverCorruption(path string, err *error) {
	if p := recover(); p != nil {
		*err = corruption(path, p)
	}
}

// recoverFault is recoverCorruption for an open database, behind a [guard], which counts the
// pages that the disk did not give back.
func (db *DB) recoverFault(err *error) {
	p := recover()
	if p == nil {
		return
	}
	*err = corruption(db.path, p)
	if faulty(p) {
		db.readFaults.Add(1)
		fault := *err
		db.readFault.Store(&fault)
	}
}

// faulty says that a panic came of memory that could not be read: of a page that the disk
// does not give back, or that is not in the file.
func faulty(p any) bool {
	_, ok := p.(interface{ Addr() uintptr })
	return ok
}

func corruption(path string, p any) error {
	reason := fmt.Sprint(p)
	if faulty(p) {
		reason = "a page of the file could not be read"
	}
	return &store.CorruptionError{Path: path, Reason: reason}
}
