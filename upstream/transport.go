package upstream

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
)

// meter is the transport of one source. It counts received bytes, decompresses gzip (net/http does
// so only if it hides the transferred bytes), and stores the error of a request whose context has a
// failureKey. It is safe for concurrent use.
type meter struct {
	next  http.RoundTripper
	bytes atomic.Int64
}

// failureKey is the context key of an *error that receives a request's failure. See [Source.Watch]
// for the reason.
type failureKey struct{}

func withFailure(ctx context.Context) (context.Context, *error) {
	var err error
	return context.WithValue(ctx, failureKey{}, &err), &err
}

func (m *meter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := m.next.RoundTrip(req)
	if err != nil {
		if p, ok := req.Context().Value(failureKey{}).(*error); ok {
			*p = err
		}
		return nil, err
	}
	resp.Body = &countedBody{resp.Body, &m.bytes}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		resp.Body = &gunzipBody{packed: resp.Body}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
		resp.Uncompressed = true
	}
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

// gunzipBody decompresses a body. The first Read makes the reader, because that already reads.
type gunzipBody struct {
	packed io.ReadCloser
	zr     *gzip.Reader
	err    error
}

func (b *gunzipBody) Read(p []byte) (int, error) {
	if b.zr == nil && b.err == nil {
		b.zr, b.err = gzip.NewReader(bufio.NewReaderSize(b.packed, packedBuffer))
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.zr.Read(p)
}

func (b *gunzipBody) Close() error { return b.packed.Close() }
