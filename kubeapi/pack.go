package kubeapi

import (
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// packBytes is how much of a packed answer is collected before it is written: a frame of zstd is
// packed without what came before.
const packBytes = 256 << 10

// maxPacking limits the frames that are packed at once, each with some hundred KiB of tables.
const maxPacking = 4

// packer packs frames of zstd. Frames follow one another in an answer, so that no answer has tables
// of its own: a server has thousands of watches. The frames have no checksum, because TLS has one.
var packer = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(maxPacking),
		zstd.WithWindowSize(packBytes), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

// packed are the buffers for packed frames.
var packed = sync.Pool{New: func() any { return new([]byte) }}

// packing returns a writer that packs an answer with zstd, if the client accepts that, else w. Each write
// is a frame of zstd, so it should be of a size that is worth it; size is that.
//
// A kube-apiserver packs lists with gzip. Clients that accept only gzip are on the same machine, and
// get answers as they are.
func packing(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, size int) {
	if !acceptsZstd(r) {
		return w, writeBufferBytes
	}
	return &packingWriter{w}, packBytes
}

// setContent sets the header of an answer in JSON, before its first write.
func setContent(w http.ResponseWriter) {
	h := w.Header()
	setJSON(h)
	if _, ok := w.(*packingWriter); ok {
		h.Set("Content-Encoding", "zstd")
		h.Add("Vary", "Accept-Encoding")
	}
}

// acceptsZstd reports whether a client accepts zstd. A weight other than 0 is ignored.
func acceptsZstd(r *http.Request) bool {
	for _, field := range r.Header.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(field, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "zstd") {
				return strings.Trim(strings.TrimPrefix(strings.TrimSpace(weight), "q="), "0.") != "" || weight == ""
			}
		}
	}
	return false
}

// packingWriter packs what is written. The header has that once the answer begins: an error is sent
// without.
type packingWriter struct{ http.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *packingWriter) Write(p []byte) (int, error) {
	buf := packed.Get().(*[]byte) //nolint:forcetypeassert // see packed
	defer packed.Put(buf)
	*buf = packer().EncodeAll(p, (*buf)[:0])
	if _, err := w.ResponseWriter.Write(*buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap is for [http.ResponseController].
func (w *packingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
