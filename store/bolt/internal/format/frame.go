package format

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const checksumBytes = 4

// Every value that is not protected otherwise has a CRC-32C in it, at an offset that depends on its
// kind, 4 bytes, little endian. It covers the name that the value is stored under and all other
// bytes of the value, in this order, so that a value under a wrong name is corrupt too. bbolt has
// no checksums on its pages.

// nameSum is the part of a checksum that covers the name.
func nameSum(name []byte) uint32 { return crc32.Checksum(name, castagnoli) }

func checksum(nameSum uint32, b []byte, at int) uint32 {
	sum := crc32.Update(nameSum, castagnoli, b[:at])
	return crc32.Update(sum, castagnoli, b[at+checksumBytes:])
}

// putChecksum sets the checksum of b, which is at offset at.
func putChecksum(nameSum uint32, b []byte, at int) {
	binary.LittleEndian.PutUint32(b[at:], checksum(nameSum, b, at))
}

// checksumMatches reports whether b is long enough to have a checksum at offset at, and
// it is the right one.
func checksumMatches(nameSum uint32, b []byte, at int) bool {
	return len(b) >= at+checksumBytes && binary.LittleEndian.Uint32(b[at:]) == checksum(nameSum, b, at)
}

// A frame, which is a dictionary or a journal entry, has a header, which is the format in byte 0 and the
// checksum in bytes 1 to 4, and then the content.
const (
	frameFormat   = 1
	frameChecksum = 1
	frameBody     = 5
)

// putFrameHeader sets the format and the checksum of b, whose content is at frameBody, for key, and
// returns b.
func putFrameHeader(key, b []byte) []byte {
	b[0] = frameFormat
	putChecksum(nameSum(key), b, frameChecksum)
	return b
}

// frameContent returns the content of a frame, nil if it is corrupt or empty.
func frameContent(key, b []byte) []byte {
	if len(b) <= frameBody || b[0] != frameFormat || !checksumMatches(nameSum(key), b, frameChecksum) {
		return nil
	}
	return b[frameBody:]
}

// appendPrefixed appends a value with its length, a uvarint, in front.
func appendPrefixed[T string | []byte](b []byte, value T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

// reader reads the fields of a value. If one is cut short, that and all after it are zero, and err is set.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.rest, r.err = nil, errShort
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// prefixed reads a value that has its length, a uvarint, in front.
func (r *reader) prefixed() (value []byte) {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.rest, r.err = nil, errShort
		return nil
	}
	value, r.rest = r.rest[:n], r.rest[n:]
	return value
}
