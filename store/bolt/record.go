package bolt

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
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
// The key is in the checksum so that a record that turns up under another key is
// noticed.
type record struct {
	codec   byte
	dict    uint32
	size    int
	uid     string
	rv      string
	firstRV string
	payload []byte
}

const (
	recordFormat   = 1
	recordChecksum = 2 // offset of the CRC
	recordBody     = 6 // offset of the fields

	codecRaw  = 0 // the JSON as it is
	codecZstd = 1 // one zstd frame
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errRecordShort    = errors.New("record is cut short")
	errRecordFormat   = errors.New("record has an unknown format")
	errRecordChecksum = errors.New("checksum does not match")
	errRecordSize     = errors.New("decoded length does not match")
)

// checksum covers a record and its key. The record is at least recordBody long.
func checksum(key, b []byte) uint32 {
	sum := crc32.Checksum(key, castagnoli)
	sum = crc32.Update(sum, castagnoli, b[:recordChecksum])
	return crc32.Update(sum, castagnoli, b[recordBody:])
}

// encode returns the record's bytes for key.
func (r *record) encode(key []byte) []byte {
	b := make([]byte, recordBody, recordBody+len(r.payload)+len(r.uid)+len(r.rv)+len(r.firstRV)+24)
	b[0], b[1] = recordFormat, r.codec
	b = binary.AppendUvarint(b, uint64(r.dict))
	b = binary.AppendUvarint(b, uint64(r.size))
	for _, s := range []string{r.uid, r.rv, r.firstRV} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = append(b, r.payload...)
	binary.LittleEndian.PutUint32(b[recordChecksum:], checksum(key, b))
	return b
}

// decodeRecord reads a record and checks it. The payload is a slice of b.
func decodeRecord(key, b []byte) (record, error) {
	if len(b) < recordBody {
		return record{}, errRecordShort
	}
	if b[0] != recordFormat {
		return record{}, errRecordFormat
	}
	if binary.LittleEndian.Uint32(b[recordChecksum:]) != checksum(key, b) {
		return record{}, errRecordChecksum
	}
	return parseRecord(b)
}

// sizeOfDamaged returns the length of the JSON of a record that fails its check,
// where the record says it in two places that agree. Most of a record is payload,
// and so is most damage.
func sizeOfDamaged(b []byte) (size int, known bool) {
	if len(b) < recordBody {
		return 0, false
	}
	r, err := parseRecord(b)
	if err != nil {
		return 0, false
	}
	if r.codec == codecRaw {
		return r.size, len(r.payload) == r.size
	}
	var frame zstd.Header
	if err := frame.Decode(r.payload); err != nil || !frame.HasFCS || frame.FrameContentSize != uint64(r.size) {
		return 0, false
	}
	return r.size, true
}

// parseRecord reads a record that is at least recordBody long.
func parseRecord(b []byte) (record, error) {
	body := b[recordBody:]
	r := record{codec: b[1]}
	dict, body, err := uvarint(body)
	if err != nil {
		return record{}, err
	}
	size, body, err := uvarint(body)
	if err != nil {
		return record{}, err
	}
	if dict > 1<<32-1 || size > maxObjectBytes {
		return record{}, errRecordSize
	}
	r.dict, r.size = uint32(dict), int(size)
	for _, s := range []*string{&r.uid, &r.rv, &r.firstRV} {
		var n uint64
		if n, body, err = uvarint(body); err != nil {
			return record{}, err
		}
		if n > uint64(len(body)) {
			return record{}, errRecordShort
		}
		*s, body = string(body[:n]), body[n:]
	}
	r.payload = body
	return r, nil
}

func uvarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errRecordShort
	}
	return v, b[n:], nil
}
