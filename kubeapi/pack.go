package kubeapi

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"hash/maphash"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// Answers are packed for clients that ask for zstd, as an agent does that follows this one. Others ask
// for gzip at most, which net/http does by itself: they are on the same machine, where packing costs
// more than it saves.
//
// A list is packed with zstd. A watch is packed with gzip, if the client accepts that too, by a compressor
// without state that is given the last bytes of the stream: an event is mostly like the ones before it.
// Alone, a frame of zstd is three times as long, and one encoder a watch would take half a megabyte.
// Watches that follow the same objects share packed events.

const (
	// packBytes is how much of a list is packed at a time, independently of the parts before.
	packBytes = 256 << 10

	// maxPacking limits the frames that are packed at once, each with some hundred KiB of tables.
	maxPacking = 4

	// historyBytes is how much of a watch is kept to pack the next event; flate uses no more.
	historyBytes = 8 << 10
)

// acceptsCoding reports whether a client accepts a coding. A weight other than 0 is ignored.
func acceptsCoding(r *http.Request, coding string) bool {
	for _, field := range r.Header.Values("Accept-Encoding") {
		for accepted := range strings.SplitSeq(field, ",") {
			name, weight, _ := strings.Cut(accepted, ";")
			if strings.EqualFold(strings.TrimSpace(name), coding) {
				return weight == "" || strings.Trim(strings.TrimPrefix(strings.TrimSpace(weight), "q="), "0.") != ""
			}
		}
	}
	return false
}

// setPacked sets the header of a packed answer.
func setPacked(h http.Header, encoding string) {
	h.Set("Content-Encoding", encoding)
	h.Add("Vary", "Accept-Encoding")
}

// packer packs frames of zstd, with a checksum of their content.
var packer = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(maxPacking),
		zstd.WithWindowSize(packBytes), zstd.WithEncoderCRC(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

// zstdWriter writes each Write as a frame of zstd.
type zstdWriter struct {
	http.ResponseWriter
	buf []byte
}

func (w *zstdWriter) Write(p []byte) (int, error) {
	w.buf = packer().EncodeAll(p, w.buf[:0])
	if _, err := w.ResponseWriter.Write(w.buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap is for [http.ResponseController].
func (w *zstdWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// gzipHeader begins a stream of which nothing is known.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// gzipWriter packs a stream with gzip. All that was written can be unpacked at any time.
type gzipWriter struct {
	w       http.ResponseWriter
	history []byte // the last bytes of the stream
	crc     uint32
	size    uint32 // of the stream, modulo 2^32
}

func (w *gzipWriter) Write(p []byte) (int, error) {
	b := w.begin()
	if err := pack(b, w.history, p); err != nil {
		return 0, err
	}
	w.crc, w.size = crc32.Update(w.crc, crc32.IEEETable, p), w.size+uint32(len(p)) //nolint:gosec // modulo
	keep := p[max(0, len(p)-historyBytes):]
	if over := len(w.history) + len(keep) - historyBytes; over > 0 {
		w.history = w.history[:copy(w.history, w.history[over:])]
	}
	w.history = append(w.history, keep...)
	if _, err := w.w.Write(b.Bytes()); err != nil {
		return len(p), err
	}
	putBuffer(b)
	return len(p), nil
}

// piece is a part of a stream, packed after its history. It is immutable.
type piece struct{ history, plain, packed []byte }

// pieces are the newest ones. To pack an event takes several times as long as to write it, and watches
// of the same objects have the same to pack: after a bookmark of its own, a stream has the history of
// the others again as soon as historyBytes have followed it.
var (
	pieces    [16]atomic.Pointer[piece]
	pieceSeed = maphash.MakeSeed()
)

// maxPiece limits a piece that is kept, in bytes that are not packed.
const maxPiece = 2 * writeBufferBytes

// pack appends plain to b in compressed form. The receiver already has history, the bytes before plain.
func pack(b *bytes.Buffer, history, plain []byte) error {
	if len(plain) > maxPiece {
		return flate.StatelessDeflate(b, plain, false, history)
	}
	var hash maphash.Hash
	hash.SetSeed(pieceSeed)
	_, _ = hash.Write(history)
	_, _ = hash.Write(plain)
	place := &pieces[hash.Sum64()%uint64(len(pieces))]
	if x := place.Load(); x != nil && bytes.Equal(x.plain, plain) && bytes.Equal(x.history, history) {
		b.Write(x.packed)
		return nil
	}
	begin := b.Len()
	if err := flate.StatelessDeflate(b, plain, false, history); err != nil {
		return err
	}
	place.Store(&piece{bytes.Clone(history), bytes.Clone(plain), bytes.Clone(b.Bytes()[begin:])})
	return nil
}

// end writes the end of the stream.
func (w *gzipWriter) end() error {
	b := w.begin()
	if err := flate.StatelessDeflate(b, nil, true, nil); err != nil {
		return err
	}
	b.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, w.crc), w.size))
	_, err := w.w.Write(b.Bytes())
	return err
}

// begin returns a buffer, with the header if the stream begins.
func (w *gzipWriter) begin() *bytes.Buffer {
	b := getBuffer()
	if w.history == nil {
		w.history = make([]byte, 0, historyBytes)
		b.Write(gzipHeader)
	}
	return b
}
