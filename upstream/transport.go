package upstream

import (
	"bufio"
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// acceptEncodings are the encodings of lists that are accepted: a kube-apiserver has gzip, an agent zstd.
const acceptEncodings = "zstd, gzip"

// meter is the transport of one source. It counts received bytes and decompresses gzip (net/http does
// so only if it hides the transferred bytes) and zstd. If the context has an answerKey, it stores
// the answer's headers of interest there. It is safe for concurrent use.
type meter struct {
	next    http.RoundTripper
	repeats bool // client-go repeats every request, not only for later pages
	bytes   atomic.Int64
}

// maxPageDelay limits each of the waits between the requests for one page, if the server names the
// time (Retry-After). client-go makes these waits, which nothing but the end of the list ends early.
const maxPageDelay = 20 * time.Second

// limitDelay limits the wait that an answer asks for.
func limitDelay(h http.Header) {
	if seconds, err := strconv.Atoi(h.Get("Retry-After")); err == nil && seconds > int(maxPageDelay.Seconds()) {
		h.Set("Retry-After", strconv.Itoa(int(maxPageDelay.Seconds())))
	}
}

// answerKey is the context key of an *answer.
type answerKey struct{}

// answer has headers of an answer, which rest.Request.Stream does not return.
type answer struct {
	mediaType string
	age       string // in seconds; an agent sends it, a kube-apiserver does not
}

func withAnswer(ctx context.Context) (context.Context, *answer) {
	a := &answer{}
	return context.WithValue(ctx, answerKey{}, a), a
}

// isOld reports whether the answer is of an agent that can't reach its server.
func (a *answer) isOld() bool { return a.age != "" && a.age != "0" }

func (m *meter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := m.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if m.repeats || req.URL.Query().Has("continue") {
		limitDelay(resp.Header)
	}
	if a, ok := req.Context().Value(answerKey{}).(*answer); ok {
		a.mediaType, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
		a.age = resp.Header.Get("Age")
	}
	resp.Body = &countedBody{resp.Body, &m.bytes}
	switch resp.Header.Get("Content-Encoding") {
	case "gzip":
		resp.Body = &unpackedBody{packed: resp.Body, open: newGzip}
	case "zstd":
		resp.Body = &unpackedBody{packed: resp.Body, open: newZstd}
	default:
		return resp, nil
	}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	resp.Uncompressed = true
	return resp, nil
}

// WrappedRoundTripper returns the inner transport, for apimachinery.
func (m *meter) WrappedRoundTripper() http.RoundTripper { return m.next }

type countedBody struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

// packedBuffer is the read size for a compressed body, in bytes. Each read may cost a flow-control
// message to the server.
const packedBuffer = 32 << 10

// unpackedBody decompresses a body. The first Read makes the reader, because that already reads.
type unpackedBody struct {
	packed io.ReadCloser
	open   func(packed io.Reader) (io.Reader, error)
	r      io.Reader
	err    error
}

func (b *unpackedBody) Read(p []byte) (int, error) {
	if b.r == nil && b.err == nil {
		b.r, b.err = b.open(b.packed)
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.r.Read(p)
}

// Close implements [io.Closer]. The reader holds no more than memory.
func (b *unpackedBody) Close() error { return b.packed.Close() }

func newGzip(packed io.Reader) (io.Reader, error) {
	return gzip.NewReader(bufio.NewReaderSize(packed, packedBuffer))
}

// maxWindow is the most memory that the server's zstd may need, in bytes.
const maxWindow = 8 << 20

// newZstd returns a reader without goroutines.
func newZstd(packed io.Reader) (io.Reader, error) {
	return zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
}
