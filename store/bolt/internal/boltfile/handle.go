package boltfile

import (
	"log/slog"
	"sync"
	"time"

	"github.com/snapcache/snapcache/store"
)

// Handle is the current file of a database. A Committer's Swap puts another file in its place; the old one is
// closed when its last reader ends, so that Swap does not wait. It is safe for concurrent
// use.
type Handle struct {
	log *slog.Logger

	mu          sync.Mutex // held for a few instructions, never for I/O
	file        *File
	closed      bool
	pagesBefore int64 // written to previous files
	syncBefore  time.Duration

	retired sync.WaitGroup // files that were replaced and still have readers
}

// NewHandle returns the handle of an open file, which it closes.
func NewHandle(f *File, log *slog.Logger) *Handle { return &Handle{file: f, log: log} }

// Begin begins a read transaction on the current file. The caller reads in Tx.Read, and ends the
// transaction with Rollback. The file stays open until then.
func (h *Handle) Begin() (tx *Tx, err error) {
	f, err := h.acquire()
	if err != nil {
		return nil, err
	}
	err = f.Read(func() error {
		raw, err := f.bolt.Begin(false)
		if err == nil {
			tx = &Tx{raw: raw, file: f, handle: h}
		}
		return orClosed(err)
	})
	if err != nil {
		h.release(f)
	}
	return tx, err
}

// acquire returns the current file, which stays open until release.
func (h *Handle) acquire() (*File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, store.ErrClosed
	}
	h.file.readers++
	return h.file, nil
}

// release ends the use of a file that acquire returned. The last release closes a file that was
// replaced.
func (h *Handle) release(f *File) {
	h.mu.Lock()
	f.readers--
	last := f.retired && f.readers == 0
	h.mu.Unlock()
	if last {
		h.discard(f)
	}
}

// View runs fn in a read transaction on the current file.
func (h *Handle) View(fn func(*Tx) error) error {
	f, err := h.acquire()
	if err != nil {
		return err
	}
	defer h.release(f)
	return f.View(fn)
}

// swap makes f, which has taken over the name of the current file, the current one.
func (h *Handle) swap(f *File) {
	h.mu.Lock()
	old := h.file
	h.file, old.retired = f, true
	f.path, f.faults = old.path, old.faults
	tx := old.bolt.Stats().TxStats
	h.pagesBefore, h.syncBefore = h.pagesBefore+tx.GetWrite(), h.syncBefore+tx.GetWriteTime()
	h.retired.Add(1)
	unread := old.readers == 0
	h.mu.Unlock()
	if unread {
		h.discard(old)
	}
}

// discard closes a replaced file without readers.
func (h *Handle) discard(f *File) {
	defer h.retired.Done()
	if err := f.Close(); err != nil {
		h.log.Warn("the file from before a compaction could not be closed", "error", err)
	}
}

// Close closes the current file, and waits for the readers of all files. Begin and View fail as
// soon as Close has begun.
func (h *Handle) Close() error {
	h.mu.Lock()
	h.closed = true
	f := h.file
	h.mu.Unlock()
	err := f.Close()
	h.retired.Wait()
	return err
}

// Closed reports whether Close was called.
func (h *Handle) Closed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// Stats returns the handle's part of a store's stats: facts about the current file, and totals over all
// files. EncryptionDue compares the file's key with keys.
func (h *Handle) Stats(keys Keyring) store.Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	tx := h.file.bolt.Stats().TxStats
	faults, newest := h.file.faults.Stats()
	return store.Stats{
		EncryptionKey: h.file.KeyID(), EncryptionDue: h.file.NeedsRekey(keys),
		PagesWritten: h.pagesBefore + tx.GetWrite(), SyncTime: h.syncBefore + tx.GetWriteTime(),
		ReadFaults: faults, ReadError: newest,
	}
}

// FreeBytes returns the bytes of the file's free pages, as of the newest commit. Only the writer, and a
// compaction, which alone swaps the file, may call it.
func (h *Handle) FreeBytes() int64 {
	stats := h.current().bolt.Stats()
	return int64(stats.FreePageN+stats.PendingPageN) * PageSize
}

// current returns the current file. Only the writer may use it without acquire, because only the
// writer swaps it.
func (h *Handle) current() *File {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.file
}
