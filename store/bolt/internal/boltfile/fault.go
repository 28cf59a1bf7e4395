package boltfile

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/snapcache/snapcache/store"
)

// ErrOrder means that the keys of a bucket are corrupt in a way that could make a cursor loop for
// ever.
var ErrOrder = errors.New("keys are not in order")

// Faults counts reads of pages that the disk could not return.
type Faults struct {
	count  atomic.Int64
	newest atomic.Pointer[error]
}

// Stats returns the number of faults and the newest one, nil for none.
func (f *Faults) Stats() (count int64, newest error) {
	if err := f.newest.Load(); err != nil {
		newest = *err
	}
	return f.count.Load(), newest
}

// Read runs fn, which reads the mapping of the file. All code that touches the mapping runs in it.
// A page that the disk can't return would end the process; in Read it is a panic of this goroutine.
// Read turns that panic, and bbolt's assertions about a corrupt file, into a
// *store.CorruptionError, and then restores the goroutine's own fault setting.
func (f *File) Read(fn func() error) (err error) { return guarded(f.path, f.faults, fn) }

// Guarded is File.Read for a file at path that is not open yet.
func Guarded(path string, fn func() error) error { return guarded(path, nil, fn) }

func guarded(path string, faults *Faults, fn func() error) (err error) {
	was := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(was)
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		err = corruption(path, p)
		if faults != nil && isFault(p) {
			faults.count.Add(1)
			fault := err
			faults.newest.Store(&fault)
		}
	}()
	return fn()
}

// isFault reports whether a panic came from memory that could not be read: a page that the disk
// could not return, or that is not in the file.
func isFault(p any) bool {
	_, ok := p.(interface{ Addr() uintptr })
	return ok
}

func corruption(path string, p any) error {
	reason := fmt.Sprint(p)
	if isFault(p) {
		reason = "a page of the file could not be read"
	}
	return &store.CorruptionError{Path: path, Reason: reason}
}
