package upstream

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
)

// meter is the transport of one source. It counts what arrives, unpacks gzip
// (which net/http does itself only where nobody is to know the bytes on the
// wire), and keeps the error of a request whose context asks for it. It is safe
// for concurrent use.
type meter struct {
	next  http.RoundTripper
	bytes atomic.Int64
}

// failureKey is the context key of an *error that takes a request's failure. See
// [Source.Watch] for why it is needed.
type failureKey struct{}

func withFailure(ctx context.Context) (context.Context, *error) {
	var err error
	return context.WithValue(ctx, failureKey{}, &err), &err
}

// RoundTrip implements [http.RoundTripper].
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

// WrappedRoundTripper lets apimachinery find the transport inside.
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

// packedBuffer is how much of a packed body is read at once. Each read can cost a
// message to the server, that it may send more.
const packedBuffer = 32 << 10

// gunzipBody unpacks a body. The reader is made with the first Read, because
// making it reads.
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
