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

// EncodeNumber returns a number of 4 or 8 bytes, big endian, with a checksum.
func EncodeNumber[N uint32 | uint64](id string, name []byte, n N) ([]byte, error) {
	b, err := binary.Append(nil, binary.BigEndian, n)
	if err != nil {
		return nil, err
	}
	return WithChecksum(id, name, b), nil
}

// DecodeNumber verifies and decodes a value of EncodeNumber.
func DecodeNumber[N uint32 | uint64](id string, name, b []byte) (n N, err error) {
	raw, err := VerifyChecksum(id, name, b)
	if err != nil {
		return 0, err
	}
	if len(raw) != binary.Size(n) {
		return 0, fmt.Errorf("it has %d bytes, not %d", len(raw), binary.Size(n))
	}
	_, err = binary.Decode(raw, binary.BigEndian, &n)
	return n, err
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
