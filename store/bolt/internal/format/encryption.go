package format

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
