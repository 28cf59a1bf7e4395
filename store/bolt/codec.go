package bolt

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/snapcache/snapcache/object"
)

const (
	// maxObjectBytes bounds what a record may decode to. The apiserver's own limit
	// for a request is 3 MiB and client-go's for a watch event 16 MiB.
	maxObjectBytes = 64 << 20

	// dictBytes is the size of a collection's dictionary, dictMinObjects the
	// number of objects it takes to make one. Objects of one kind repeat each
	// other's keys and boilerplate, which a dictionary lets each of them refer to.
	dictBytes      = 64 << 10
	dictMinObjects = 8

	// compressAbove is the length under which compressing costs more than it saves.
	compressAbove = 64
)

// codecs compresses and decompresses payloads, with dictionaries that are stored
// in the file. It is safe for concurrent use.
type codecs struct {
	mu       sync.Mutex
	encoders map[uint32]*zstd.Encoder
	decoders map[uint32]*zstd.Decoder
}

func newCodecs() *codecs {
	return &codecs{encoders: map[uint32]*zstd.Encoder{}, decoders: map[uint32]*zstd.Decoder{}}
}

// plain makes a record of an object that is not compressed.
func plain(o *object.Object) (record, error) {
	r := record{
		codec: codecRaw, size: o.Size(), payload: o.Raw(),
		uid: string(o.GetUID()), rv: o.GetResourceVersion(),
	}
	if r.size > maxObjectBytes {
		return r, fmt.Errorf("object of %d bytes is over the limit of %d", r.size, maxObjectBytes)
	}
	return r, nil
}

// packable says that compressing a plain record pays.
func (r *record) packable() bool { return r.codec == codecRaw && r.size >= compressAbove }

// compress compresses a plain record with dictionary id, whose content is dict.
func (c *codecs) compress(r *record, id uint32, dict []byte) error {
	enc, err := c.encoder(id, dict)
	if err != nil {
		return err
	}
	r.codec, r.dict = codecZstd, id
	r.payload = enc.EncodeAll(r.payload, make([]byte, 0, r.size/5+64))
	return nil
}

func (c *codecs) encoder(id uint32, dict []byte) (*zstd.Encoder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if enc := c.encoders[id]; enc != nil {
		return enc, nil
	}
	enc, err := newEncoder(id, dict)
	if err == nil {
		c.encoders[id] = enc
	}
	return enc, err
}

// retire forgets the encoder of a dictionary that no new record is compressed with.
func (c *codecs) retire(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id != 0 { // the journal's
		delete(c.encoders, id)
	}
}

func newEncoder(id uint32, dict []byte) (*zstd.Encoder, error) {
	opts := []zstd.EOption{
		zstd.WithEncoderLevel(zstd.SpeedFastest), // with a dictionary a slower one saves 5 % more
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), // records have a checksum of their own
		zstd.WithSingleSegment(true),
		zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(128 << 10),
	}
	if id != 0 {
		opts = append(opts, zstd.WithEncoderDictRaw(id, dict))
	}
	enc, err := zstd.NewWriter(nil, opts...)
	if err != nil {
		return nil, fmt.Errorf("zstd encoder: %w", err)
	}
	return enc, nil
}

// decode returns the object's JSON in a buffer of its own. lookup fetches the
// content of a dictionary that is met for the first time.
func (c *codecs) decode(r record, lookup func(id uint32) []byte) ([]byte, error) {
	switch r.codec {
	case codecRaw:
		if len(r.payload) != r.size {
			return nil, errRecordSize
		}
		return append([]byte(nil), r.payload...), nil
	case codecZstd:
	default:
		return nil, errRecordFormat
	}
	dec, err := c.decoder(r.dict, lookup)
	if err != nil {
		return nil, err
	}
	out, err := dec.DecodeAll(r.payload, make([]byte, 0, r.size))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(out) != r.size {
		return nil, errRecordSize
	}
	return out, nil
}

func (c *codecs) decoder(id uint32, lookup func(uint32) []byte) (*zstd.Decoder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dec := c.decoders[id]; dec != nil {
		return dec, nil
	}
	opts := []zstd.DOption{
		zstd.WithDecoderConcurrency(2),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxObjectBytes),
	}
	if id != 0 {
		dict := lookup(id)
		if dict == nil {
			return nil, fmt.Errorf("dictionary %d is missing or damaged", id)
		}
		opts = append(opts, zstd.WithDecoderDictRaw(id, dict))
	}
	dec, err := zstd.NewReader(nil, opts...)
	if err != nil {
		return nil, fmt.Errorf("zstd decoder: %w", err)
	}
	c.decoders[id] = dec
	return dec, nil
}

func (c *codecs) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, enc := range c.encoders {
		_ = enc.Close() // flushes nothing: only EncodeAll was used
	}
	for _, dec := range c.decoders {
		dec.Close()
	}
}

// trainDict makes a dictionary of sample objects, at least one: pieces of their text,
// the samples spread over all of them.
func trainDict(samples []*object.Object) []byte {
	step := 1
	if n := dictBytes / samples[0].Size(); n > 0 && len(samples) > n {
		step = len(samples) / n
	}
	var dict []byte
	for i := 0; i < len(samples) && len(dict) < dictBytes; i += step {
		raw := samples[i].Raw()
		// A few objects may be much longer than the rest: no more than half a
		// dictionary is spent on one.
		dict = append(dict, raw[:min(len(raw), dictBytes/2, dictBytes-len(dict))]...)
	}
	return dict
}

func dictKey(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }

// A dictionary on disk is, under its id (4 bytes, big endian):
//
//	byte  0      format, dictFormat
//	bytes 1..4   CRC-32C, little endian, over the key, byte 0 and the content
//	rest         the content
//
// The checksum is there because those of the records are of what they have on
// disk: under a changed dictionary they would decode to something else.
const (
	dictFormat = 1
	dictHeader = 5
)

func encodeDict(key, content []byte) []byte {
	b := append(make([]byte, dictHeader, dictHeader+len(content)), content...)
	b[0] = dictFormat
	binary.LittleEndian.PutUint32(b[1:], dictChecksum(key, b))
	return b
}

// decodeDict returns the content in a buffer of its own, nil where it is damaged.
func decodeDict(key, b []byte) []byte {
	if len(b) <= dictHeader || b[0] != dictFormat || binary.LittleEndian.Uint32(b[1:]) != dictChecksum(key, b) {
		return nil
	}
	return append([]byte(nil), b[dictHeader:]...)
}

func dictChecksum(key, b []byte) uint32 {
	sum := crc32.Checksum(key, castagnoli)
	sum = crc32.Update(sum, castagnoli, b[:1])
	return crc32.Update(sum, castagnoli, b[dictHeader:])
}

// dictLookup returns a function that reads dictionaries in tx. It answers nil for
// what is missing or damaged.
func dictLookup(tx *fileTx) func(uint32) []byte {
	return func(id uint32) []byte {
		b := tx.Bucket(bucketDict)
		if b == nil {
			return nil
		}
		key := dictKey(id)
		return decodeDict(key, b.Get(key))
	}
}
