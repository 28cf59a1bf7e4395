package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// The journal bucket has one bucket a flush, under its sequence number (8 bytes, big endian), with
// one value, "entry". Each value has a bucket of its own, because bbolt keeps up to four values in
// a page, however large: in one bucket, a value would be rewritten with each of the next ones.
//
// The value is a frame. Its content is one zstd frame of cells, in the order of their addresses. A cell
// is: uvarint length and address; one byte, 1 if the key is deleted; unless it is, uvarint length and
// value.

// ErrJournal means that a journal entry does not decode.
var ErrJournal = errors.New("journal entry is corrupt")

// EncodeJournalEntry returns the entry for key with the cells at addrs, which are in order.
func EncodeJournalEntry(c *Codecs, key []byte, addrs []string, cells func(addr string) (value []byte, deleted bool)) ([]byte, error) {
	var raw []byte
	for _, addr := range addrs {
		value, deleted := cells(addr)
		raw = appendPrefixed(raw, addr)
		if deleted {
			raw = append(raw, 1)
			continue
		}
		raw = appendPrefixed(append(raw, 0), value)
	}
	enc, err := c.Encoder(0, nil)
	if err != nil {
		return nil, err
	}
	return putFrameHeader(key, enc.EncodeAll(raw, make([]byte, frameBody, frameBody+len(raw)/2+64))), nil
}

// VerifyJournalEntry returns an error if the entry for key is corrupt. It does not decompress it.
func VerifyJournalEntry(key, b []byte) error {
	if frameContent(key, b) == nil {
		return ErrJournal
	}
	return nil
}

// JournalCells holds the cells of one journal entry, in the order of their addresses.
type JournalCells struct {
	raw   []byte // the entry, uncompressed; never written to again
	Cells []CellRef
}

// CellRef is the place of a cell in an entry. There are a hundred thousand of them while a journal
// is replayed, so it is small, and has no pointer that garbage collection would have to follow.
type CellRef struct {
	Entry    uint32 // number of the entry
	at, size uint32 // offset and length of the address in the uncompressed entry, in bytes
}

// Addr returns the address of a cell.
func (e *JournalCells) Addr(r CellRef) []byte { return e.raw[r.at : r.at+r.size] }

// Cell returns a cell with its address, both of which share the entry's buffer.
func (e *JournalCells) Cell(r CellRef) (addr string, value []byte, deleted bool) {
	b := e.Addr(r)
	addr = unsafe.String(unsafe.SliceData(b), len(b))
	// DecodeJournalEntry has checked the length of the value.
	rest := e.raw[r.at+r.size:]
	if rest[0] == 1 {
		return addr, nil, true
	}
	n, width := binary.Uvarint(rest[1:])
	rest = rest[1+width:]
	return addr, rest[:n:n], false
}

// DecodeJournalEntry returns the cells of the entry for key, with entry as their entry number.
func DecodeJournalEntry(c *Codecs, entry uint32, key, b []byte) (*JournalCells, error) {
	content := frameContent(key, b)
	if content == nil {
		return nil, ErrJournal
	}
	dec, err := c.Decoder(0, nil)
	if err != nil {
		return nil, err
	}
	raw, err := dec.DecodeAll(content, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJournal, err)
	}
	if len(raw) > MaxObjectBytes {
		return nil, ErrJournal
	}
	e := &JournalCells{raw: raw}
	var last []byte
	for in := (reader{rest: raw}); len(in.rest) > 0; {
		addr := in.prefixed()
		if len(in.rest) == 0 || len(e.Cells) > 0 && bytes.Compare(last, addr) >= 0 {
			return nil, ErrJournal
		}
		last = addr
		at := len(raw) - len(in.rest) - len(addr)
		e.Cells = append(e.Cells, CellRef{Entry: entry, at: uint32(at), size: uint32(len(addr))}) //nolint:gosec // at most maxObjectBytes
		deleted := in.rest[0] == 1
		if in.rest = in.rest[1:]; !deleted {
			in.prefixed()
		}
		if in.err != nil {
			return nil, ErrJournal
		}
	}
	return e, nil
}
