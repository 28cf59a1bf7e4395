package clustercheck

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// tally counts the requests of one measurement. It is safe for concurrent use.
type tally struct {
	began                     time.Time
	requests, bytes, unpacked atomic.Int64
}

type tallyKey struct{}

// counting returns a context whose requests are counted.
func counting(ctx context.Context) (context.Context, *tally) {
	t := &tally{began: time.Now()}
	return context.WithValue(ctx, tallyKey{}, t), t
}

func (t *tally) cost() Cost {
	return Cost{
		Requests: t.requests.Load(), Seconds: time.Since(t.began).Seconds(), Bytes: t.bytes.Load(), UnpackedBytes: t.unpacked.Load(),
	}
}

// counter is the transport below the client's. It unpacks bodies, because only here both sizes are visible.
type counter struct{ next http.RoundTripper }

// WrappedRoundTripper returns the inner transport, for apimachinery.
func (c counter) WrappedRoundTripper() http.RoundTripper { return c.next }

// RoundTrip implements [http.RoundTripper].
func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	t, ok := r.Context().Value(tallyKey{}).(*tally)
	if err != nil || !ok {
		return resp, err
	}
	t.requests.Add(1)
	packed := resp.Body
	read := io.Reader(countedReader{packed, &t.bytes})
	if resp.Header.Get("Content-Encoding") == "gzip" && r.URL.Query().Get("watch") == "" {
		if read, err = gzip.NewReader(read); err != nil {
			_ = packed.Close()
			return nil, err
		}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{countedReader{read, &t.unpacked}, packed}
	return resp, nil
}

type countedReader struct {
	io.Reader
	bytes *atomic.Int64
}

func (r countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.bytes.Add(int64(n))
	return n, err
}
