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
	"slices"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

const (
	// spoolMemoryBytes is how much of a spool stays in memory before it goes to a file.
	spoolMemoryBytes = 1 << 20

	// spoolBufferBytes is the buffer of the writer and of the reader of a file, in bytes.
	spoolBufferBytes = 64 << 10

	// maxEntryBytes limits one entry: the stores' limit for an object, and room for the rest.
	maxEntryBytes = object.MaxBytes + 1<<20
)

// spool holds a sequence of entries between the view that they are copied from and a consumer of
// any speed. An entry is a header of bytes and, if it has one, the record of an object as it is
// stored. It is filled by add, then read by each, then closed. It is for one goroutine.
type spool struct {
	sink *sink
	w    *bufio.Writer

	// The records are of one view: all are in sink and have one function that decodes them, or all
	// are objects in memory.
	decode  func(key string, stored, buf []byte) ([]byte, error)
	objects []*object.Object
}

func newSpool(dir string) *spool {
	create := []func() (*os.File, error){unlinkedIn(dir), unlinkedIn(os.TempDir())}
	return spoolOn(newSink(spoolMemoryBytes, create...))
}

func spoolOn(s *sink) *spool { return &spool{sink: s, w: bufio.NewWriterSize(s, spoolBufferBytes)} }

// add appends a copy of an entry. A record without a key stands for no record.
func (s *spool) add(head []byte, rec store.Record) error {
	if rec.Object != nil {
		s.objects = append(s.objects, rec.Object)
	} else if rec.Decode != nil {
		s.decode = rec.Decode
	}
	var length [binary.MaxVarintLen64]byte
	for _, part := range [][]byte{head, []byte(rec.Key), rec.Stored} {
		_, err := s.w.Write(length[:binary.PutUvarint(length[:], uint64(len(part)))])
		if err == nil {
			_, err = s.w.Write(part)
		}
		if err != nil {
			return fmt.Errorf("spool: %w", err)
		}
	}
	return nil
}

// each calls fn with every entry: its header, and the JSON of its object, nil for none. Header and
// JSON are valid until fn returns. No entry may be added after each was called. A record that can't
// be decoded is added to corrupt and left out. Errors of fn are returned unchanged.
func (s *spool) each(ctx context.Context, corrupt *damage, fn func(head, object []byte) error) error {
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	r := bufio.NewReaderSize(s.sink.reader(), spoolBufferBytes)
	var parts [3][]byte
	var buf []byte
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range parts {
			var err error
			if parts[i], err = readPart(r, parts[i]); errors.Is(err, io.EOF) && i == 0 {
				return nil
			} else if err != nil {
				return fmt.Errorf("spool: %w", err)
			}
		}
		rec := store.Record{Header: store.Header{Key: string(parts[1])}, Stored: parts[2], Decode: s.decode}
		if rec.Key != "" && len(s.objects) > 0 {
			rec.Object, s.objects = s.objects[0], s.objects[1:]
		}
		json, err := recordJSON(rec, &buf)
		switch {
		case corrupt.add(err):
			continue
		case err != nil:
			return err
		}
		if err := fn(parts[0], json); err != nil {
			return err
		}
	}
}

// recordJSON returns the JSON of a record, nil if it has no key. It decodes into buf.
func recordJSON(rec store.Record, buf *[]byte) ([]byte, error) {
	if rec.Key == "" {
		return nil, nil
	}
	raw, err := rec.Raw(*buf)
	if err != nil {
		return nil, err
	}
	if rec.Object == nil {
		*buf = raw
	}
	return object.JSON(raw)
}

// readPart reads a part of an entry into buf, if it fits. It returns io.EOF only before the part.
func readPart(r *bufio.Reader, buf []byte) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	if n > maxEntryBytes {
		return nil, fmt.Errorf("entry of %d bytes", n)
	}
	buf = slices.Grow(buf[:0], int(n))[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return buf, nil
}

// close frees the spool.
func (s *spool) close() { s.sink.close() }

// sink receives the stream of entries: up to limit bytes in memory, then all of it in the first
// file that can be created and has space.
//
// The content is encrypted with AES-256-CTR and a key that exists only in this sink: the objects may
// come from an encrypted database.
type sink struct {
	limit  int
	create []func() (*os.File, error)

	mem     []byte
	file    *os.File
	written int64 // bytes in file

	block cipher.Block
	seal  cipher.Stream // at the end of the content
	buf   []byte        // reused by Write
}

func newSink(limit int, create ...func() (*os.File, error)) *sink {
	s := &sink{limit: limit, create: create}
	key := make([]byte, 32)
	_, _ = rand.Read(key)           // never fails
	s.block, _ = aes.NewCipher(key) // fails only for other sizes
	s.seal = s.stream()
	return s
}

// stream returns the key stream from its start. A key is used for only one stream.
func (s *sink) stream() cipher.Stream { return cipher.NewCTR(s.block, make([]byte, aes.BlockSize)) }

// unlinkedIn creates files in dir, os.TempDir if it is empty, that are freed when they are closed or
// the process ends.
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
	s.buf = append(s.buf[:0], p...)
	s.seal.XORKeyStream(s.buf, s.buf)
	if s.file == nil && len(s.mem)+len(p) <= s.limit {
		s.mem = append(s.mem, s.buf...)
		return len(p), nil
	}
	failed := errors.New("no temporary file can be written")
	for {
		if s.file != nil {
			_, err := s.file.WriteAt(s.buf, s.written)
			if err == nil {
				s.written += int64(len(p))
				return len(p), nil
			}
			failed = fmt.Errorf("%w: %w", failed, err)
		}
		if len(s.create) == 0 {
			return 0, failed
		}
		if err := s.move(); err != nil {
			failed = fmt.Errorf("%w: %w", failed, err)
		}
	}
}

// move moves the content to the next file. If it fails, the content stays.
func (s *sink) move() error {
	create := s.create[0]
	s.create = s.create[1:]
	f, err := create()
	if err != nil {
		return err
	}
	n, err := io.Copy(f, s.sealed())
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.close()
	s.mem, s.file, s.written = nil, f, n
	return nil
}

// sealed returns the content as it is stored.
func (s *sink) sealed() io.Reader {
	if s.file == nil {
		return bytes.NewReader(s.mem)
	}
	return io.NewSectionReader(s.file, 0, s.written)
}

func (s *sink) reader() io.Reader { return &cipher.StreamReader{S: s.stream(), R: s.sealed()} }

// close frees the content, so it returns no error.
func (s *sink) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
