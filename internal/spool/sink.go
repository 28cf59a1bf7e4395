package spool

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
)

// sink receives the stream of entries: up to limit bytes in memory, then all of it in the first
// file that can be created and has space.
//
// The content is encrypted with AES-256-CTR and a key that exists only in this sink: the objects may
// come from an encrypted database.
type sink struct {
	limit  int
	create []func() (*os.File, error)

	block cipher.Block
	seal  cipher.Stream // at the end of the content
	buf   []byte        // reused by Write

	mu       sync.Mutex // guards the fields below
	more     sync.Cond  // there is more content, or the end
	mem      []byte
	file     *os.File
	written  int64 // bytes in mem or file
	finished bool
	err      error // the producer's
}

func newSink(limit int, create ...func() (*os.File, error)) *sink {
	s := &sink{limit: limit, create: create}
	s.more.L = &s.mu
	key := make([]byte, 32)
	_, _ = rand.Read(key)           // never fails
	s.block, _ = aes.NewCipher(key) // fails only for other sizes
	s.seal = s.stream(0)
	return s
}

// stream returns the key stream from a place in the content. A key is used for only one stream.
func (s *sink) stream(at int64) cipher.Stream {
	counter := make([]byte, aes.BlockSize)
	binary.BigEndian.PutUint64(counter[aes.BlockSize-8:], uint64(at)/aes.BlockSize) //nolint:gosec // not negative
	stream := cipher.NewCTR(s.block, counter)
	skipped := counter[:at%aes.BlockSize]
	stream.XORKeyStream(skipped, skipped)
	return stream
}

// unlinkedIn creates files in dir, os.TempDir if it is empty, that are freed when they are closed or
// the process ends.
func unlinkedIn(dir string) func() (*os.File, error) {
	return func() (*os.File, error) {
		f, err := os.CreateTemp(dir, "snapcache-spool-*")
		if err != nil {
			return nil, err
		}
		if keepsNames {
			return f, nil
		}
		if err := os.Remove(f.Name()); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}

func (s *sink) Write(p []byte) (int, error) {
	s.buf = append(s.buf[:0], p...)
	s.seal.XORKeyStream(s.buf, s.buf)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.appendLocked(s.buf); err != nil {
		return 0, err
	}
	s.written += int64(len(p))
	s.more.Broadcast()
	return len(p), nil
}

func (s *sink) appendLocked(b []byte) error {
	if s.file == nil && len(s.mem)+len(b) <= s.limit {
		s.mem = append(s.mem, b...)
		return nil
	}
	failed := errors.New("no temporary file can be written")
	for {
		if s.file != nil {
			_, err := s.file.WriteAt(b, s.written)
			if err == nil {
				return nil
			}
			failed = fmt.Errorf("%w: %w", failed, err)
		}
		if len(s.create) == 0 {
			return failed
		}
		if err := s.moveLocked(); err != nil {
			failed = fmt.Errorf("%w: %w", failed, err)
		}
	}
}

// moveLocked moves the content to the next file. If it fails, the content stays.
func (s *sink) moveLocked() error {
	create := s.create[0]
	s.create = s.create[1:]
	f, err := create()
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, io.NewSectionReader(readerAt(s.readLocked), 0, s.written)); err != nil {
		return errors.Join(err, f.Close())
	}
	if s.file != nil {
		_ = s.file.Close()
	}
	s.mem, s.file = nil, f
	return nil
}

type readerAt func(p []byte, at int64) (int, error)

func (r readerAt) ReadAt(p []byte, at int64) (int, error) { return r(p, at) }

// readLocked reads the content as it is stored.
func (s *sink) readLocked(p []byte, at int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, at)
	}
	n := copy(p, s.mem[min(at, int64(len(s.mem))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readAt reads the content from a place on until p is full.
func (s *sink) readAt(p []byte, at int64) error {
	s.mu.Lock()
	n, err := s.readLocked(p, at)
	s.mu.Unlock()
	if n < len(p) {
		return err
	}
	s.stream(at).XORKeyStream(p, p)
	return nil
}

// finish ends the content.
func (s *sink) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished, s.err = true, err
	s.more.Broadcast()
}

// bytes returns the length of the content.
func (s *sink) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// failure returns the error of finish.
func (s *sink) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// reader returns a reader of the content. At its end it waits for more, until finish.
func (s *sink) reader() io.Reader { return &cipher.StreamReader{S: s.stream(0), R: &sealed{sink: s}} }

// sealed reads a sink's content as it is stored.
type sealed struct {
	sink *sink
	at   int64
}

func (r *sealed) Read(p []byte) (int, error) {
	s := r.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	for r.at == s.written && !s.finished {
		s.more.Wait()
	}
	n, err := s.readLocked(p[:min(int64(len(p)), s.written-r.at)], r.at)
	r.at += int64(n)
	if n > 0 || err == nil && len(p) == 0 {
		return n, nil
	}
	if r.at == s.written {
		return 0, io.EOF
	}
	return n, err
}

// close frees the content, so it returns no error. A reader that still waits gets the end.
func (s *sink) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	s.more.Broadcast()
	if s.file != nil {
		_ = s.file.Close()
		if keepsNames {
			_ = os.Remove(s.file.Name())
		}
	}
}

// keepsNames is set if the system removes no file that is open: then its name is removed when it is closed.
const keepsNames = runtime.GOOS == "windows"
