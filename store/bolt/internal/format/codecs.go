package format

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// MaxObjectBytes bounds the length of a decoded record, in bytes. The apiserver's own limit for
	// a request is 3 MiB and client-go's for a watch event 16 MiB.
	MaxObjectBytes = 64 << 20

	// CompressAbove is the length under which compressing costs more than it saves.
	CompressAbove = 64

	// MaxDicts limits the dictionaries of a collection. The workload of most clusters never changes so
	// much that one gets a third.
	MaxDicts = 8

	// maxDecoders limits the decoders that are kept, each of which has a copy of its dictionary. A
	// collection has one to three.
	maxDecoders = 128

	// maxEncoders limits the encoders that are kept, each of which takes about 1 MiB with its dictionary. A flush
	// and a list compress the records of one collection after the other.
	maxEncoders = 32

	// A zstd block has four bytes or more, and at most maxBlockBytes of content.
	minBlockBytes, maxBlockBytes = 4, 128 << 10
)

// Codecs compresses and decompresses payloads, with dictionaries that are stored in the file. It keeps at
// most maxEncoders encoders and maxDecoders decoders, and is safe for concurrent use.
// Codecs are never closed: without a stream they own only memory, and records are decoded after the
// database is closed.
type Codecs struct {
	mu       sync.Mutex
	encoders map[uint32]*zstd.Encoder
	decoders map[uint32]*zstd.Decoder
}

// NewCodecs returns codecs without encoders and decoders.
func NewCodecs() *Codecs {
	return &Codecs{encoders: map[uint32]*zstd.Encoder{}, decoders: map[uint32]*zstd.Decoder{}}
}

// Compress compresses a plain record with dictionary id, whose content is dict.
func (c *Codecs) Compress(r *Record, id uint32, dict []byte) error {
	enc, err := c.Encoder(id, dict)
	if err != nil {
		return err
	}
	r.Codec, r.Dict = CodecZstd, id
	r.Payload = enc.EncodeAll(r.Payload, make([]byte, 0, r.Size/5+64))
	return nil
}

// Encoder returns the encoder for dictionary id, whose content is dict; 0 is for no dictionary. It may be used
// for as long as the caller has it.
func (c *Codecs) Encoder(id uint32, dict []byte) (*zstd.Encoder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if enc := c.encoders[id]; enc != nil {
		return enc, nil
	}
	opts := []zstd.EOption{
		zstd.WithEncoderLevel(zstd.SpeedFastest), // with a dictionary, a slower level saves only 5 % more
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
	for other := range c.encoders {
		if len(c.encoders) < maxEncoders {
			break
		}
		delete(c.encoders, other) // any one
	}
	c.encoders[id] = enc
	return enc, nil
}

// Retire drops the encoder of a dictionary that no new record is compressed with.
func (c *Codecs) Retire(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id != 0 { // 0 is the journal's encoder
		delete(c.encoders, id)
	}
}

// Decode returns the object's JSON, in buf if it fits. It calls lookup for the content of
// a dictionary that it has no decoder for.
func (c *Codecs) Decode(r Record, lookup func(id uint32) []byte, buf []byte) ([]byte, error) {
	if r.Codec != CodecZstd {
		return r.Decode(nil, buf)
	}
	dec, err := c.Decoder(r.Dict, lookup)
	if err != nil {
		return nil, err
	}
	return r.Decode(dec, buf)
}

// Decode returns the object's JSON, in buf if it fits. dec is the decoder for the record's dictionary.
func (r *Record) Decode(dec *zstd.Decoder, buf []byte) ([]byte, error) {
	switch r.Codec {
	case codecRaw:
		if len(r.Payload) != r.Size {
			return nil, errRecordSize
		}
		return append(buf[:0], r.Payload...), nil
	case CodecZstd:
	default:
		return nil, errRecordFormat
	}
	if unpackedBytes(r.Payload) != r.Size {
		return nil, errRecordSize
	}
	if cap(buf) < r.Size {
		buf = make([]byte, 0, r.Size)
	}
	out, err := dec.DecodeAll(r.Payload, buf[:0])
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(out) != r.Size {
		return nil, errRecordSize
	}
	return out, nil
}

// Decoders are the decoders for the records of one view, which may be decoded long after the view has ended
// and Codecs have dropped the decoders. It is safe for concurrent use.
type Decoders struct {
	mu  sync.RWMutex
	all map[uint32]*zstd.Decoder
}

// Load makes the decoder for r's dictionary one of d.
func (d *Decoders) Load(c *Codecs, r Record, lookup func(uint32) []byte) error {
	if r.Codec != CodecZstd || d.of(r.Dict) != nil {
		return nil
	}
	dec, err := c.Decoder(r.Dict, lookup)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.all) > MaxDicts { // one more, for records without a dictionary
		return fmt.Errorf("dictionary %d is one of more than %d", r.Dict, MaxDicts)
	}
	if d.all == nil {
		d.all = map[uint32]*zstd.Decoder{}
	}
	d.all[r.Dict] = dec
	return nil
}

// Decode is [Codecs.Decode] for a record that was loaded.
func (d *Decoders) Decode(r Record, buf []byte) ([]byte, error) {
	dec := d.of(r.Dict)
	if r.Codec == CodecZstd && dec == nil {
		return nil, fmt.Errorf("dictionary %d is not that of a record of the view", r.Dict)
	}
	return r.Decode(dec, buf)
}

func (d *Decoders) of(dict uint32) *zstd.Decoder {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.all[dict]
}

// unpackedBytes returns the length of a zstd frame's content according to its header, which every encoder
// of Codecs writes. It returns -1 if the header has none, or more than a frame of this length can
// have: memory is allocated by the result.
func unpackedBytes(frame []byte) int {
	var h zstd.Header
	if h.Decode(frame) != nil || !h.HasFCS || h.FrameContentSize > MaxObjectBytes {
		return -1
	}
	n := int(h.FrameContentSize) //nolint:gosec // see above
	if n > (len(frame)/minBlockBytes+1)*maxBlockBytes {
		return -1
	}
	return n
}

// Decoder returns the decoder for dictionary id. It calls lookup for the content of a
// dictionary that it has no decoder for. The decoder may be used for as long as the caller has it.
func (c *Codecs) Decoder(id uint32, lookup func(uint32) []byte) (*zstd.Decoder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dec := c.decoders[id]; dec != nil {
		return dec, nil
	}
	opts := []zstd.DOption{
		zstd.WithDecoderConcurrency(2),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxObjectBytes),
	}
	if id != 0 {
		dict := lookup(id)
		if dict == nil {
			return nil, fmt.Errorf("dictionary %d is missing or corrupt", id)
		}
		opts = append(opts, zstd.WithDecoderDictRaw(id, dict))
	}
	dec, err := zstd.NewReader(nil, opts...)
	if err != nil {
		return nil, fmt.Errorf("zstd decoder: %w", err)
	}
	for other := range c.decoders {
		if len(c.decoders) < maxDecoders {
			break
		}
		delete(c.decoders, other) // any one: with so many dictionaries, a record's neighbours have other ones
	}
	c.decoders[id] = dec
	return dec, nil
}
