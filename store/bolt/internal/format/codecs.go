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
)

// Codecs compresses and decompresses payloads, with dictionaries that are stored in the file. It
// keeps an encoder and a decoder for each of them, and is safe for concurrent use. Codecs are never
// closed: without a stream they own only memory, and records are decoded after the database is
// closed.
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

// Encoder returns the encoder for dictionary id, whose content is dict; 0 is for no dictionary.
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
// a dictionary that it has no decoder for yet.
func (c *Codecs) Decode(r Record, lookup func(id uint32) []byte, buf []byte) ([]byte, error) {
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
	dec, err := c.Decoder(r.Dict, lookup)
	if err != nil {
		return nil, err
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

// Decoder returns the decoder for dictionary id. It calls lookup for the content of a
// dictionary that it has no decoder for yet.
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
	c.decoders[id] = dec
	return dec, nil
}
