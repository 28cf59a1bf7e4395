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

var errJournalRoom = fmt.Errorf("%w: it unpacks to more than a journal of this length can have", ErrJournal)

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

// The cells of a journal are in memory, all at once. A writer folds its journal at 24 MiB, in which values
// are compressed already, or 90,000 cells, or with the next flush that may fold. So a journal whose entries
// unpack to more than looseJournalBytes and maxJournalRatio times their length, or that has
// looseJournalCells and more than one in minCellBytes, was made by something else, to fill the memory.
const (
	looseJournalBytes = 64 << 20
	maxJournalRatio   = 16
	looseJournalCells = 1_000_000
	minCellBytes      = 16
)

// JournalRoom is the memory that a journal's entries may take. The zero value is for the first entry.
type JournalRoom struct{ stored, unpacked, cells int }

// add adds an entry of so many bytes. It returns false if the journal has no room for it.
func (j *JournalRoom) add(stored, unpacked int) bool {
	j.stored, j.unpacked = j.stored+stored, j.unpacked+unpacked
	return unpacked >= 0 && j.unpacked <= looseJournalBytes+maxJournalRatio*j.stored
}

// addCell adds a cell. It returns false if the journal has no room for it.
func (j *JournalRoom) addCell() bool {
	j.cells++
	return j.cells <= looseJournalCells+j.stored/minCellBytes
}

// DecodeJournalEntry returns the cells of the entry for key, with entry as their entry number. It takes
// the memory of room, which all entries of a journal share.
func DecodeJournalEntry(c *Codecs, room *JournalRoom, entry uint32, key, b []byte) (*JournalCells, error) {
	content := frameContent(key, b)
	if content == nil {
		return nil, ErrJournal
	}
	dec, err := c.Decoder(0, nil)
	if err != nil {
		return nil, err
	}
	size := unpackedBytes(content)
	if !room.add(len(b), size) {
		return nil, errJournalRoom
	}
	raw, err := dec.DecodeAll(content, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJournal, err)
	}
	if len(raw) != size {
		return nil, ErrJournal
	}
	e := &JournalCells{raw: raw}
	var last []byte
	for in := (reader{rest: raw}); len(in.rest) > 0; {
		addr := in.prefixed()
		if len(in.rest) == 0 || len(e.Cells) > 0 && bytes.Compare(last, addr) >= 0 {
			return nil, ErrJournal
		}
		if !room.addCell() {
			return nil, errJournalRoom
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
