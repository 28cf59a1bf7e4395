package memory

import (
	"encoding/binary"
	"hash/maphash"
)

// values are those that an object is filed under, for each of the content's indexes: how
// many there are, and each with its length before it. In one string two of them are
// compared by one look, and nothing of the object they came from is kept.
type values string

// appendValues appends those of one index.
func appendValues(b []byte, of []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(of)))
	for _, v := range of {
		b = append(binary.AppendUvarint(b, uint64(len(v))), v...)
	}
	return b
}

// sharedValues has values by a hash of them, the newest of each. Most objects are filed as many
// others are: they have one string together, and an update is seen to leave the indexes as
// they are without a look at what is in it.
type sharedValues [1 << 10]values

var valuesSeed = maphash.MakeSeed()

// of returns encoded values as a string that others may have too.
func (s *sharedValues) of(encoded []byte) values {
	known := &s[maphash.Bytes(valuesSeed, encoded)%uint64(len(s))]
	if string(*known) != string(encoded) {
		*known = values(encoded)
	}
	return *known
}

// next appends those of the first index to of, and returns what is left. Nothing is filed
// under nothing.
func (v values) next(of []string) ([]string, values) {
	if v == "" {
		return of, v
	}
	n, v := v.uvarint()
	for range n {
		var length uint64
		length, v = v.uvarint()
		of, v = append(of, string(v[:length])), v[length:]
	}
	return of, v
}

func (v values) uvarint() (n uint64, rest values) {
	for i := 0; ; i++ {
		n |= uint64(v[i]&0x7f) << (7 * i)
		if v[i] < 0x80 {
			return n, v[i+1:]
		}
	}
}
