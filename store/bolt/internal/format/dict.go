package format

import "encoding/binary"

// DictKey returns the key of a dictionary in the bucket "dict".
func DictKey(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }

// A dictionary on disk is, under its id (4 bytes, big endian):
//
//	byte  0      format, dictFormat
//	bytes 1..4   CRC-32C, little endian, over the key, byte 0 and the content
//	rest         the content
//
// The checksum of a record covers its compressed bytes. With a changed dictionary these would
// decode to something else, so a dictionary has a checksum as well.
const (
	dictFormat   = 1
	dictChecksum = 1 // offset of the CRC
	dictBody     = 5 // offset of the content
)

// EncodeDict returns the value of a dictionary, for key.
func EncodeDict(key, content []byte) []byte {
	b := append(make([]byte, dictBody, dictBody+len(content)), content...)
	b[0] = dictFormat
	putChecksum(nameSum(key), b, dictChecksum)
	return b
}

// DecodeDict returns the content in a buffer of its own, nil if it is corrupt.
func DecodeDict(key, b []byte) []byte {
	if len(b) <= dictBody || b[0] != dictFormat || !checksumMatches(nameSum(key), b, dictChecksum) {
		return nil
	}
	return append([]byte(nil), b[dictBody:]...)
}
