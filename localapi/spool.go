package localapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/s2"
)

const (
	// spoolMemoryBytes is how much of a spool, compressed, stays in memory before it goes to a
	// file.
	spoolMemoryBytes = 1 << 20

	// spoolBlockBytes is the unit of compression. Writer and reader each hold a few blocks.
	spoolBlockBytes = 64 << 10

	// maxEntryBytes limits one entry. It is the stores' limit for an object.
	maxEntryBytes = 64 << 20
)

// spool holds a sequence of byte strings between the view they are copied from and a consumer of
// any speed. It is filled by add, then read by each, then closed. It is for one goroutine.
type spool struct {
	sink *sink
	w    *s2.Writer
}

func newSpool(dir string) *spool {
	s := &sink{limit: spoolMemoryBytes}
	if dir != "" {
		s.create = append(s.create, unlinkedIn(dir))
	}
	s.create = append(s.create, unlinkedIn(os.TempDir()))
	return spoolOn(s)
}

func spoolOn(s *sink) *spool {
	// With a concurrency of 1 there are no goroutines, and one block is held.
	return &spool{sink: s, w: s2.NewWriter(s, s2.WriterConcurrency(1), s2.WriterBlockSize(spoolBlockBytes))}
}

// add appends a copy of b.
func (s *spool) add(b []byte) error {
	var length [binary.MaxVarintLen64]byte
	_, err := s.w.Write(length[:binary.PutUvarint(length[:], uint64(len(b)))])
	if err == nil {
		_, err = s.w.Write(b)
	}
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

// each ends the filling and calls fn with every entry, in a buffer that fn may keep. Errors of fn
// are returned unchanged.
func (s *spool) each(ctx context.Context, fn func([]byte) error) error {
	if err := s.w.Close(); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	r := bufio.NewReader(s2.NewReader(s.sink.reader(), s2.ReaderMaxBlockSize(spoolBlockBytes), s2.ReaderAllocBlock(spoolBlockBytes)))
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := readEntry(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("spool: %w", err)
		}
		if err := fn(b); err != nil {
			return err
		}
	}
}

// readEntry returns io.EOF only between entries.
func readEntry(r *bufio.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	if n > maxEntryBytes {
		return nil, fmt.Errorf("entry of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b, nil
}

// close frees the spool. It loses nothing, so it returns no error.
func (s *spool) close() {
	if s.sink.file != nil {
		_ = s.sink.file.Close()
	}
}

// sink receives the compressed stream: up to limit bytes in memory, then all of it in the first
// file that can be created and has space.
//
// The content of a file is encrypted with AES-256-CTR and a key that exists only in this sink: the
// objects may come from an encrypted database.
type sink struct {
	limit  int
	create []func() (*os.File, error)

	mem     []byte
	file    *os.File
	written int64 // bytes in file

	block cipher.Block  // nil while there is no file
	seal  cipher.Stream // at position written
}

// stream returns the key stream from its start. A key is used for only one stream.
func (s *sink) stream() cipher.Stream { return cipher.NewCTR(s.block, make([]byte, aes.BlockSize)) }

// encrypt returns p encrypted for the next position in the file.
func (s *sink) encrypt(p []byte) ([]byte, error) {
	if s.block == nil {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		var err error
		if s.block, err = aes.NewCipher(key); err != nil {
			return nil, err
		}
		s.seal = s.stream()
	}
	sealed := make([]byte, len(p))
	s.seal.XORKeyStream(sealed, p)
	return sealed, nil
}

// unlinkedIn creates files in dir that are freed when they are closed or the process ends.
func unlinkedIn(dir string) func() (*os.File, error) {
	return func() (*os.File, error) {
		f, err := os.CreateTemp(dir, "snapcache-spool-*")
		if err != nil {
			return nil, err
		}
		if err := os.Remove(f.Name()); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	if s.file == nil {
		if len(s.mem)+len(p) <= s.limit {
			s.mem = append(s.mem, p...)
			return len(p), nil
		}
		head, err := s.encrypt(s.mem)
		if err == nil {
			err = s.spill(nil, head)
		}
		if err != nil {
			return 0, err
		}
		s.mem = nil
	}
	sealed, err := s.encrypt(p)
	if err != nil {
		return 0, err
	}
	for {
		if _, err := s.file.WriteAt(sealed, s.written); err == nil {
			s.written += int64(len(p))
			return len(p), nil
		} else if err := s.spill(err, nil); err != nil {
			return 0, err
		}
	}
}

// spill moves the content, which is head or else the file that failed with cause, to the next file.
func (s *sink) spill(cause error, head []byte) error {
	failed := errors.New("no temporary file can be written")
	if cause != nil {
		failed = fmt.Errorf("%w: %w", failed, cause)
	}
	for len(s.create) > 0 {
		create := s.create[0]
		s.create = s.create[1:]
		f, err := create()
		if err != nil {
			failed = fmt.Errorf("%w: %w", failed, err)
			continue
		}
		n := int64(len(head))
		if s.file == nil {
			_, err = f.Write(head)
		} else {
			n, err = io.Copy(f, io.NewSectionReader(s.file, 0, s.written))
		}
		if err != nil {
			_ = f.Close() // its content is discarded
			failed = fmt.Errorf("%w: %w", failed, err)
			continue
		}
		if s.file != nil {
			_ = s.file.Close() // its content was moved
		}
		s.file, s.written = f, n
		return nil
	}
	return failed
}

func (s *sink) reader() io.Reader {
	if s.file == nil {
		return bytes.NewReader(s.mem)
	}
	return &cipher.StreamReader{S: s.stream(), R: io.NewSectionReader(s.file, 0, s.written)}
}
