package format

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// The small values that all of a collection depends on (info, state, gen, dict, indexes,
// building, history) begin with a checksum:
//
//	bytes 0..3   CRC-32C, little endian, over the collection's ID, 0x00, the
//	             value's name, 0x00 and the content
//	rest         the content
//
// Without it, a digit of a resourceVersion that flips on the disk could put the checkpoint ahead of
// the objects.
var (
	errValueShort    = errors.New("it is missing or cut short")
	errValueChecksum = errors.New("checksum does not match")
)

// WithChecksum returns content with its checksum, for the value name of collection id.
func WithChecksum(id string, name, content []byte) []byte {
	b := make([]byte, checksumBytes, checksumBytes+len(content))
	b = append(b, content...)
	putChecksum(valueName(id, name), b, 0)
	return b
}

// VerifyChecksum returns the content of a value, as a slice of it. A value that is absent is
// corrupt too.
func VerifyChecksum(id string, name, b []byte) ([]byte, error) {
	switch {
	case len(b) < checksumBytes:
		return nil, errValueShort
	case !checksumMatches(valueName(id, name), b, 0):
		return nil, errValueChecksum
	}
	return b[checksumBytes:], nil
}

func valueName(id string, name []byte) uint32 {
	sum := nameSum([]byte(id))
	sum = crc32.Update(sum, castagnoli, []byte{0})
	sum = crc32.Update(sum, castagnoli, name)
	return crc32.Update(sum, castagnoli, []byte{0})
}

// EncodeJSON returns v as JSON with a checksum.
func EncodeJSON(id string, name []byte, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return WithChecksum(id, name, raw), nil
}

// DecodeJSON verifies and decodes a value of EncodeJSON.
func DecodeJSON(id string, name, b []byte, v any) error {
	raw, err := VerifyChecksum(id, name, b)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

// EncodeNumber returns a number of 8 bytes, big endian, with a checksum.
func EncodeNumber(id string, name []byte, n uint64) []byte {
	return WithChecksum(id, name, binary.BigEndian.AppendUint64(nil, n))
}

// DecodeNumber verifies and decodes a value of EncodeNumber.
func DecodeNumber(id string, name, b []byte) (uint64, error) {
	raw, err := VerifyChecksum(id, name, b)
	if err != nil {
		return 0, err
	}
	if len(raw) != 8 {
		return 0, fmt.Errorf("it has %d bytes, not 8", len(raw))
	}
	return binary.BigEndian.Uint64(raw), nil
}

// EncodeDictIDs returns the ids of a collection's dictionaries, oldest first, 4 bytes each,
// big endian, with a checksum. New records are compressed with the newest.
func EncodeDictIDs(id string, ids []uint32) []byte {
	var b []byte
	for _, n := range ids {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return WithChecksum(id, KeyDict, b)
}

// DecodeDictIDs verifies and decodes a value of EncodeDictIDs; nil if the value is absent.
func DecodeDictIDs(id string, b []byte) (ids []uint32, err error) {
	if b == nil {
		return nil, nil
	}
	raw, err := VerifyChecksum(id, KeyDict, b)
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 || len(raw)%4 != 0 {
		return nil, fmt.Errorf("it has %d bytes, which are no ids", len(raw))
	}
	for ; len(raw) > 0; raw = raw[4:] {
		ids = append(ids, binary.BigEndian.Uint32(raw))
	}
	return ids, nil
}

// DictKey returns the key of a dictionary in the bucket "dict", where it is a frame.
func DictKey(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }

// MaxDictBytes limits a dictionary, of which each decoder has a copy.
const MaxDictBytes = 64 << 10

// EncodeDict returns the value of a dictionary, for key.
func EncodeDict(key, content []byte) []byte {
	return putFrameHeader(key, append(make([]byte, frameBody, frameBody+len(content)), content...))
}

// DecodeDict returns the content in a buffer of its own, nil if it is corrupt or too large. The checksum of
// a record covers its compressed bytes: with a changed dictionary these would decode to something else.
func DecodeDict(key, b []byte) []byte {
	content := frameContent(key, b)
	if len(content) > MaxDictBytes {
		return nil
	}
	return append([]byte(nil), content...)
}

// KeyIDBytes is the length of a key's id.
const KeyIDBytes = 8

// The encryption header of an encrypted file is in meta, under "encryption":
//
//	byte  0       format, encryptionFormat
//	bytes 1..8    id of the key
//	bytes 9..40   salt of this file
//	rest          tag: AES-256-GCM of nothing, with the address of this value and bytes 0
//	              to 40 as associated data, which only the right key makes
//
// The key of the values is derived from key and salt with HKDF-SHA-256. A file has one key for as
// long as it exists: another key needs another file.
const (
	encryptionFormat = 1
	SaltBytes        = 32
	encryptionTag    = 1 + KeyIDBytes + SaltBytes // offset of the tag
)

// EncodeEncryptionHeader returns an encryption header up to its tag.
func EncodeEncryptionHeader(id [KeyIDBytes]byte, salt []byte) []byte {
	b := make([]byte, 0, 2*encryptionTag)
	b = append(append(b, encryptionFormat), id[:]...)
	return append(b, salt...)
}

// DecodeEncryptionHeader splits an encryption header. It verifies only the format; the cipher
// verifies the tag.
func DecodeEncryptionHeader(b []byte) (id [KeyIDBytes]byte, salt, tag []byte, ok bool) {
	if len(b) < encryptionTag || b[0] != encryptionFormat {
		return id, nil, nil, false
	}
	return [KeyIDBytes]byte(b[1:]), b[1+KeyIDBytes : encryptionTag], b[encryptionTag:], true
}

// TxStamp describes the newest transaction. Every transaction writes it, to the meta
// bucket's value "last":
//
//	bytes 0..7   number of the transaction, big endian
//	byte  8      1 if it was the last one before the file was closed, else 0
//	rest         boot id of the machine that it was made on; empty if it has none
//
// The number ties the data to bbolt's meta page: after a power cut, a disk that reported writes too
// early may hold a new meta page and old data.
type TxStamp struct {
	Tx    uint64
	Clean bool
	Boot  string
}

// Encode returns the stamp as it is stored.
func (s TxStamp) Encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, s.Tx)
	if s.Clean {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return append(b, s.Boot...)
}

// DecodeTxStamp decodes the bytes of [TxStamp.Encode].
func DecodeTxStamp(b []byte) (s TxStamp, ok bool) {
	if len(b) < 9 || b[8] > 1 {
		return s, false
	}
	return TxStamp{Tx: binary.BigEndian.Uint64(b), Clean: b[8] == 1, Boot: string(b[9:])}, true
}
