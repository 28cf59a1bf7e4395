package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/snapcache/snapcache/object"
)

// A record is one object on disk:
//
//	byte  0      format, recordFormat
//	byte  1      codec of the payload
//	bytes 2..5   CRC-32C (Castagnoli), little endian, over the key, then bytes
//	             0 and 1, then everything from byte 6 on
//	uvarint      dictionary id, 0 for none
//	uvarint      length of the object's JSON
//	uvarint, n   UID
//	uvarint, n   resourceVersion
//	uvarint, n   resourceVersion at which the key appeared
//	rest         payload
//
// Decoding copies only the three strings: the payload is a slice of the parsed bytes.
type Record struct {
	Codec   byte
	Dict    uint32
	Size    int
	UID     string
	RV      string
	FirstRV string
	Payload []byte
}

const (
	recordFormat   = 1
	recordChecksum = 2 // offset of the CRC
	recordBody     = 6 // offset of the fields

	codecRaw = 0 // the JSON as it is

	// CodecZstd marks a body that is one zstd frame.
	CodecZstd = 1
)

var (
	errShort          = errors.New("record is cut short")
	errRecordFormat   = errors.New("record has an unknown format")
	errRecordChecksum = errors.New("checksum does not match")
	errRecordSize     = errors.New("decoded length does not match")
)

// NewRecord returns the record of an object, not compressed.
func NewRecord(o *object.Object) (Record, error) {
	r := Record{
		Codec: codecRaw, Size: o.Size(), Payload: o.Raw(),
		UID: string(o.GetUID()), RV: o.GetResourceVersion(),
	}
	if r.Size > MaxObjectBytes {
		return r, fmt.Errorf("object of %d bytes is over the limit of %d", r.Size, MaxObjectBytes)
	}
	return r, nil
}

// Compressible reports whether the record is not compressed yet and long enough to be worth it.
func (r *Record) Compressible() bool { return r.Codec == codecRaw && r.Size >= CompressAbove }

// Encode returns the record's bytes for key.
func (r *Record) Encode(key []byte) []byte {
	b := make([]byte, recordBody, recordBody+len(r.Payload)+len(r.UID)+len(r.RV)+len(r.FirstRV)+24)
	b[0], b[1] = recordFormat, r.Codec
	b = binary.AppendUvarint(b, uint64(r.Dict))
	b = binary.AppendUvarint(b, uint64(r.Size))
	for _, s := range []string{r.UID, r.RV, r.FirstRV} {
		b = appendPrefixed(b, s)
	}
	b = append(b, r.Payload...)
	putChecksum(nameSum(key), b, recordChecksum)
	return b
}

// DecodeRecord reads a record and verifies its checksum. The payload is a slice of b.
func DecodeRecord(key, b []byte) (Record, error) {
	switch {
	case len(b) < recordBody:
		return Record{}, errShort
	case b[0] != recordFormat:
		return Record{}, errRecordFormat
	case !checksumMatches(nameSum(key), b, recordChecksum):
		return Record{}, errRecordChecksum
	}
	return ParseRecord(b)
}

// ParseRecord reads a record without verifying its checksum.
func ParseRecord(b []byte) (Record, error) {
	if len(b) < recordBody {
		return Record{}, errShort
	}
	in := reader{rest: b[recordBody:]}
	dict, size := in.uvarint(), in.uvarint()
	fields := in.rest
	next := func() (value []byte, end int) {
		value = in.prefixed()
		return value, len(fields) - len(in.rest)
	}
	uid, uidEnd := next()
	rv, rvEnd := next()
	first, end := next()
	switch {
	case in.err != nil:
		return Record{}, in.err
	case dict > 1<<32-1 || size > MaxObjectBytes:
		return Record{}, errRecordSize
	}
	all := string(fields[:end]) // one allocation for the three
	return Record{
		Codec: b[1], Dict: uint32(dict), Size: int(size),
		UID: all[uidEnd-len(uid) : uidEnd], RV: all[rvEnd-len(rv) : rvEnd], FirstRV: all[end-len(first):],
		Payload: in.rest,
	}, nil
}
