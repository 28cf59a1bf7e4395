package kubeapi

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store/storetest"
)

// unpacked returns what the frames of zstd hold.
func unpacked(t *testing.T, b []byte) string {
	t.Helper()
	d, err := zstd.NewReader(nil)
	require.NoError(t, err)
	defer d.Close()
	all, err := d.DecodeAll(b, nil)
	require.NoError(t, err)
	return string(all)
}

// gunzipped returns what a stream of gzip holds, which ends with an error.
func gunzipped(t *testing.T, b []byte, end error) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	all, err := io.ReadAll(r)
	require.ErrorIs(t, err, end)
	return string(all)
}

// written returns what was written to a client until now.
func (s *stream) written() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]byte(nil), s.buf.Bytes()...)
}

// TestPackedWatch checks that a packed watch has the bytes of another one at each moment.
func TestPackedWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for i := range 2000 { // more than is written at once
			w.put(fmt.Sprintf("c/n-%d", i), &pod{ns: "c", name: fmt.Sprintf("n-%d", i), app: strings.Repeat("x", 200)})
		}
		w.all()
		w.drain()
		const query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=100"
		plain, packed := open(t, w, query), open(t, w, query, "Accept-Encoding", "zstd, gzip")
		require.Equal(t, "gzip", packed.Header().Get("Content-Encoding"))
		require.Equal(t, "Accept-Encoding", packed.Header().Get("Vary"))
		require.Empty(t, plain.Header().Get("Content-Encoding"))
		for _, accept := range []string{"zstd", "gzip", "zstd, gzip;q=0", "zstd;q=0, gzip", "zstd, *"} {
			require.Empty(t, open(t, w, query, "Accept-Encoding", accept).Header().Get("Content-Encoding"), accept)
		}
		same := func() {
			t.Helper()
			require.True(t, string(plain.written()) == gunzipped(t, packed.written(), io.ErrUnexpectedEOF)) // too long to print
		}
		require.Greater(t, len(plain.written()), 2*packBytes)
		require.Less(t, len(packed.written()), len(plain.written())/5)
		same()
		for i := range 3 {
			w.change("a/x", fmt.Sprint(i), "")
			require.Contains(t, string(plain.written()), fmt.Sprintf(`"resourceVersion":"%d"`, w.rv))
			same()
		}
		small := len(packed.written())
		w.remove("a/x")
		same()
		require.Less(t, len(packed.written())-small, 100, "bytes of an event like the one before")
		time.Sleep(100 * time.Second)
		synctest.Wait()
		require.True(t, packed.ended())
		require.True(t, string(plain.written()) == gunzipped(t, packed.written(), nil))
	})
}

// putPod delivers the change of a pod as a server has it, without managedFields.
func (w *world) putPod(t *testing.T, i, version int) {
	t.Helper()
	raw, err := object.NewPrune(object.ManagedFields).Append(nil, storetest.Pod(i, version))
	require.NoError(t, err)
	o, err := object.FromValid(raw)
	require.NoError(t, err)
	require.NoError(t, w.queue.Update(o))
	w.drain()
}

// TestPackedBytes checks that a packed watch has at most a quarter of the bytes of another one, of an hour
// in which little happens, and of a client that returns, whether or not all events are known.
func TestPackedBytes(t *testing.T) {
	const query = "allowWatchBookmarks=true&timeoutSeconds=4000&resourceVersion="
	both := func(t *testing.T, w *world, rv string) (plain, packed *stream) {
		t.Helper()
		return open(t, w, query+rv), open(t, w, query+rv, "Accept-Encoding", "zstd, gzip")
	}
	compare := func(t *testing.T, plain, packed *stream) {
		t.Helper()
		all := plain.written()
		require.True(t, string(all) == gunzipped(t, packed.written(), io.ErrUnexpectedEOF))
		t.Logf("%d bytes, packed %d", len(all), len(packed.written()))
		require.Less(t, 4*len(packed.written()), len(all))
	}
	t.Run("idle hour", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.putPod(t, 0, 1)
			plain, packed := both(t, w, storetest.PodRV(0, 1))
			time.Sleep(30 * time.Second) // between two bookmarks
			for i := range 6 {
				time.Sleep(10 * time.Minute)
				w.putPod(t, i, 2)
			}
			require.GreaterOrEqual(t, strings.Count(string(plain.written()), "BOOKMARK"), 60)
			compare(t, plain, packed)
			require.EqualValues(t, len(plain.written())+len(packed.written()), valueOf(t, w.server.opts.Metrics.bytes.WithLabelValues("watch")))
		})
	})
	t.Run("client returns", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			const pods = 100
			for version := range 2 {
				for i := range pods {
					w.putPod(t, i, version+1)
				}
			}
			last := storetest.PodRV(pods-1, 1)
			for _, tier := range []string{"exact", "coalesced"} {
				plain, packed := both(t, w, last)
				require.Equal(t, pods, strings.Count(string(plain.written()), "MODIFIED"), tier)
				compare(t, plain, packed)
				w.events.Skip(storetest.PodRV(pods-1, 2)) // of the events of before none is known
			}
		})
	})
}

// TestPackedList checks that a packed list has the bytes of another one, and which answers are packed.
func TestPackedList(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for i := range 2000 {
			w.put(fmt.Sprintf("c/n-%d", i), &pod{ns: "c", name: fmt.Sprintf("n-%d", i), app: strings.Repeat("x", 200)})
		}
		w.all()
		w.drain()
		get := func(url, accept string) *httptest.ResponseRecorder {
			rec, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, url, nil)
			r.Header.Set("Accept-Encoding", accept)
			w.server.ServeHTTP(rec, r)
			return rec
		}
		const list = "/api/v1/pods?resourceVersion=0"
		plain, packed := get(list, "identity"), get(list, "gzip, ZSTD;q=0.5")
		require.True(t, plain.Body.String() == unpacked(t, packed.Body.Bytes()))
		require.Less(t, packed.Body.Len(), plain.Body.Len()/5)
		require.Equal(t, "zstd", packed.Header().Get("Content-Encoding"))
		var frame zstd.Header
		require.NoError(t, frame.Decode(packed.Body.Bytes()))
		require.True(t, frame.HasCheckSum)
		require.EqualValues(t, plain.Body.Len()+packed.Body.Len(), valueOf(t, w.server.opts.Metrics.bytes.WithLabelValues("list")))
		for _, accept := range []string{"", "gzip", "zstd;q=0", "zstd;q=0.0", "zstdx", "*"} {
			require.Empty(t, get(list, accept).Header().Get("Content-Encoding"), accept)
		}
		for _, url := range []string{list + "&limit=x", "/api/v1/pods?watch=1&resourceVersion=x", "/api/v1/namespaces/c/pods/n-1"} {
			answer := get(url, "zstd, gzip")
			require.Empty(t, answer.Header().Get("Content-Encoding"), url)
			require.True(t, strings.HasPrefix(answer.Body.String(), "{"), url)
		}
	})
}

// TestGzipWriter checks that what was written can be unpacked after each write, whatever its size.
func TestGzipWriter(t *testing.T) {
	rec := httptest.NewRecorder()
	w := &gzipWriter{w: rec}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // content of a test
	var all []byte
	for i, size := range []int{1, 10, historyBytes - 11, historyBytes, 1, historyBytes + 1, 100_000, 70_000, 3, 0} {
		p := make([]byte, size)
		for i := range p {
			p[i] = byte('a' + random.IntN(4))
		}
		n, err := w.Write(p)
		require.NoError(t, err)
		require.Equal(t, size, n)
		all = append(all, p...)
		require.True(t, string(all) == gunzipped(t, rec.Body.Bytes(), io.ErrUnexpectedEOF), i)
	}
	require.NoError(t, w.end())
	require.True(t, string(all) == gunzipped(t, rec.Body.Bytes(), nil))
}

// TestPackedPiecesAreShared checks that streams share what is packed once they have the same history,
// and not before.
func TestPackedPiecesAreShared(t *testing.T) {
	type client struct {
		*gzipWriter
		rec *httptest.ResponseRecorder
		all string
	}
	clients := make([]*client, 3*len(pieces))
	for i := range clients {
		rec := httptest.NewRecorder()
		clients[i] = &client{gzipWriter: &gzipWriter{w: rec}, rec: rec}
	}
	write := func(c *client, p string) {
		t.Helper()
		_, err := c.Write([]byte(p))
		require.NoError(t, err)
		c.all += p
		require.True(t, c.all == gunzipped(t, c.rec.Body.Bytes(), io.ErrUnexpectedEOF))
	}
	const event = "an event for all of them"
	for i, c := range clients {
		write(c, strings.Repeat(fmt.Sprintf("what only client %d has; ", i), i+1))
		write(c, event)
	}
	for _, c := range clients {
		write(c, strings.Repeat("as much as the history has; ", historyBytes/20))
	}
	packed := func() (all []*piece) {
		for i := range pieces {
			if p := pieces[i].Load(); p != nil && string(p.plain) == event && len(p.history) == historyBytes {
				all = append(all, p)
			}
		}
		return all
	}
	write(clients[0], event)
	once := packed()
	require.Len(t, once, 1)
	for _, c := range clients[1:] {
		write(c, event)
		require.Same(t, once[0], packed()[0])
	}
}
