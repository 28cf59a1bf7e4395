package format

import "encoding/binary"

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
