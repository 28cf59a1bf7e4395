// Package spool holds records between the view that they are copied from and a consumer of any speed,
// so that a view is open only as long as the store takes to read it.
package spool

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

const (
	// memoryBytes is how much of a spool stays in memory before it goes to a file.
	memoryBytes = 1 << 20

	// bufferBytes is the buffer of the writer and of the reader of a file, in bytes.
	bufferBytes = 64 << 10

	// maxEntryBytes limits one entry: the stores' limit for an object, and room for the rest.
	maxEntryBytes = object.MaxBytes + 1<<20
)

// Spool holds a sequence of entries. An entry is a header of bytes and, if it has one, the record of
// an object as it is stored. One goroutine calls Add and Finish, one calls Each, which may run
// beside them; Close comes last.
type Spool struct {
	sink *sink
	w    *bufio.Writer

	mu sync.Mutex
	// The records are of one view: all are in sink and have one function that decodes them, or all
	// are objects in memory.
	decode  func(key string, stored, buf []byte) ([]byte, error)
	objects []*object.Object
}

// New returns an empty spool, with its file in dir, or in os.TempDir if that is empty or not
// writable. The file has no name, so nothing is left after any end of the process.
func New(dir string) *Spool {
	return on(newSink(memoryBytes, unlinkedIn(dir), unlinkedIn(os.TempDir())))
}

func on(s *sink) *Spool { return &Spool{sink: s, w: bufio.NewWriterSize(s, bufferBytes)} }

// Add appends a copy of an entry. A record without a key stands for no record.
func (s *Spool) Add(head []byte, rec store.Record) error {
	s.mu.Lock()
	if rec.Object != nil {
		s.objects = append(s.objects, rec.Object)
	} else if rec.Decode != nil {
		s.decode = rec.Decode
	}
	s.mu.Unlock()
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

// Finish ends the sequence: Each returns err after the last entry.
func (s *Spool) Finish(err error) {
	if flushed := s.w.Flush(); flushed != nil {
		err = errors.Join(err, fmt.Errorf("spool: %w", flushed))
	}
	s.sink.finish(err)
}

// Bytes returns the number of added bytes, except for the last few, which are still to be written, before
// Finish.
func (s *Spool) Bytes() int64 { return s.sink.bytes() }

// Each calls fn with every entry: its header, and the JSON of its object, nil for none. Both are
// valid until fn returns. For a record that can't be decoded, fn gets the error. Each waits for
// entries that are still to be added, until Finish. It returns the first error of fn unchanged.
func (s *Spool) Each(ctx context.Context, fn func(head, object []byte, err error) error) error {
	r := bufio.NewReaderSize(s.sink.reader(), bufferBytes)
	var parts [3][]byte
	var buf []byte
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range parts {
			var err error
			if parts[i], err = readPart(r, parts[i]); errors.Is(err, io.EOF) && i == 0 {
				return s.sink.failure()
			} else if err != nil {
				return errors.Join(s.sink.failure(), fmt.Errorf("spool: %w", err))
			}
		}
		json, err := recordJSON(s.record(parts[1], parts[2]), &buf)
		if err := fn(parts[0], json, err); err != nil {
			return err
		}
	}
}

// record returns the record of an entry that was read.
func (s *Spool) record(key, stored []byte) store.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := store.Record{Header: store.Header{Key: string(key)}, Stored: stored, Decode: s.decode}
	if rec.Key != "" && len(s.objects) > 0 {
		rec.Object, s.objects = s.objects[0], s.objects[1:]
	}
	return rec
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

// Close frees the spool.
func (s *Spool) Close() { s.sink.close() }
