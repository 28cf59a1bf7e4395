package bolt

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/snapcache/snapcache/store"
)

// A sealed value is a small value that everything else of a collection hangs on,
// with a checksum in front:
//
//	bytes 0..3   CRC-32C, little endian, over the collection's ID, 0x00, the
//	             value's name, 0x00 and the content
//	rest         the content
//
// ID and name are in the checksum so that a value that turns up in the place of
// another is noticed. bbolt has none of its own on its pages: without this a digit
// of a resourceVersion that flips on the disk would be a checkpoint that is ahead of
// the objects.
const sealBytes = 4

var (
	errSealShort    = errors.New("it is missing or cut short")
	errSealChecksum = errors.New("checksum does not match")
)

// seal returns content under a checksum, for the value name of a collection.
func seal(id string, name, content []byte) []byte {
	b := make([]byte, sealBytes, sealBytes+len(content))
	binary.LittleEndian.PutUint32(b, sealChecksum(id, name, content))
	return append(b, content...)
}

// unseal returns the content of a sealed value, as a slice of it. What is absent is
// as damaged as what was changed.
func unseal(id string, name, b []byte) ([]byte, error) {
	if len(b) < sealBytes {
		return nil, errSealShort
	}
	if binary.LittleEndian.Uint32(b) != sealChecksum(id, name, b[sealBytes:]) {
		return nil, errSealChecksum
	}
	return b[sealBytes:], nil
}

func sealChecksum(id string, name, content []byte) uint32 {
	sum := crc32.Checksum([]byte(id), castagnoli)
	sum = crc32.Update(sum, castagnoli, []byte{0})
	sum = crc32.Update(sum, castagnoli, name)
	sum = crc32.Update(sum, castagnoli, []byte{0})
	return crc32.Update(sum, castagnoli, content)
}

// putJSON seals v as JSON.
func putJSON(t table, id string, name []byte, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.Put(name, seal(id, name, raw))
}

// openJSON reads what putJSON wrote.
func openJSON(id string, name, b []byte, v any) error {
	raw, err := unseal(id, name, b)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

// putNumber seals a number of 4 or 8 bytes, big endian.
func putNumber[N uint32 | uint64](t table, id string, name []byte, n N) error {
	b, err := binary.Append(nil, binary.BigEndian, n)
	if err != nil {
		return err
	}
	return t.Put(name, seal(id, name, b))
}

// openNumber reads what putNumber wrote.
func openNumber[N uint32 | uint64](id string, name, b []byte) (n N, err error) {
	raw, err := unseal(id, name, b)
	if err != nil {
		return 0, err
	}
	if len(raw) != binary.Size(n) {
		return 0, fmt.Errorf("it has %d bytes, not %d", len(raw), binary.Size(n))
	}
	_, err = binary.Decode(raw, binary.BigEndian, &n)
	return n, err
}

// damagedHead says that a sealed value of a collection can't be used.
func damagedHead(path, id string, name []byte, err error) error {
	return &store.CorruptionError{Path: path, Collection: id, Reason: fmt.Sprintf("%s: %v", name, err)}
}
