package spool

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"

	"github.com/klauspost/compress/s2"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Records holds records and objects for reads in any order, at any later time. One goroutine adds, while
// others may read what was added. Its file is freed with the last reference to it and its places.
type Records struct {
	sink *sink
}

// Place is where a Records has a record. It is safe for concurrent use.
type Place struct {
	of     *Records
	key    string
	at     int64
	decode func(key string, stored, buf []byte) ([]byte, error)
}

// recordHead is the length of an entry's header, which is the length of its record.
const recordHead = 4

// NewRecords returns an empty Records, whose file is in dir, as [New] has it.
func NewRecords(dir string) *Records {
	r := &Records{sink: newSink(bufferBytes, unlinkedIn(dir), unlinkedIn(os.TempDir()))}
	runtime.AddCleanup(r, (*sink).close, r.sink)
	return r
}

// Bytes returns the number of added bytes.
func (r *Records) Bytes() int64 { return r.sink.bytes() }

// Add appends a copy of a stored record. After an error nothing more can be added.
func (r *Records) Add(rec store.Record) (*Place, error) {
	p := &Place{of: r, key: rec.Key, at: r.sink.bytes(), decode: rec.Decode}
	entry := binary.BigEndian.AppendUint32(make([]byte, 0, recordHead+len(rec.Stored)), uint32(len(rec.Stored))) //nolint:gosec // at most object.MaxBytes
	if _, err := r.sink.Write(append(entry, rec.Stored...)); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	return p, nil
}

// AddObject is Add for an object, which it compresses.
func (r *Records) AddObject(o *object.Object) (*Place, error) {
	return r.Add(store.Record{Header: store.Header{Key: o.Key()}, Stored: s2.Encode(nil, o.Raw()), Decode: unpack})
}

func unpack(_ string, stored, buf []byte) ([]byte, error) { return s2.Decode(buf, stored) }

// Object reads the object.
func (p *Place) Object() (*object.Object, error) {
	head := make([]byte, recordHead)
	err := p.of.sink.readAt(head, p.at)
	var stored []byte
	if err == nil {
		stored = make([]byte, min(binary.BigEndian.Uint32(head), maxEntryBytes))
		err = p.of.sink.readAt(stored, p.at+recordHead)
	}
	if err != nil {
		return nil, fmt.Errorf("spool: %s: %w", p.key, err)
	}
	return store.Record{Header: store.Header{Key: p.key}, Stored: stored, Decode: p.decode}.Decoded()
}
