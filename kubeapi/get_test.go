package kubeapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
)

// keeping is a client that is cut while HTTP/2 still has its answer to send.
type keeping struct {
	header http.Header
	body   []byte
}

func (k *keeping) Header() http.Header { return k.header }
func (k *keeping) WriteHeader(int)     {}
func (k *keeping) Write(p []byte) (int, error) {
	k.body = p
	return 0, errors.New("stream closed")
}

// TestConcurrentGets has clients get objects of several sizes at once, some of which are cut: no answer has
// bytes of another one.
func TestConcurrentGets(t *testing.T) {
	durable, err := bolt.Open(filepath.Join(t.TempDir(), "cache.db"), bolt.Options{})
	require.NoError(t, err)
	for _, tc := range []struct {
		name string
		db   store.DB
	}{{"bolt", durable}, {"memory", memory.New()}} {
		t.Run(tc.name, func(t *testing.T) {
			defer func() { require.NoError(t, tc.db.Close()) }()
			const objects, clients, each = 20, 8, 50
			c := newCached(t, tc.db, 0, 0)
			for i := range objects {
				c.add(t, random(10+i*3_000))
			}
			url := func(i int) string { return fmt.Sprintf("/api/v1/namespaces/ns/configmaps/o%06d", 1+i%objects) }
			v, err := c.stored.View()
			require.NoError(t, err)
			var want []string
			for i := range objects {
				o, err := v.Get(fmt.Sprintf("ns/o%06d", 1+i))
				require.NoError(t, err)
				want = append(want, string(o.JSON())+"\n")
			}
			v.Close()

			s := c.server("")
			srv := httptest.NewUnstartedServer(s)
			srv.EnableHTTP2 = true
			srv.StartTLS()
			defer srv.Close()
			var group errgroup.Group
			for n := range clients {
				group.Go(func() error {
					for i := range each {
						answer, err := srv.Client().Get(srv.URL + url(n+i)) //nolint:noctx // ends with the server
						if err != nil {
							return err
						}
						body, err := io.ReadAll(answer.Body)
						answer.Body.Close()
						if err != nil || string(body) != want[(n+i)%objects] {
							return fmt.Errorf("%s has %.200q… of %d bytes: %w", url(n+i), body, len(body), err)
						}
						cut := &keeping{header: http.Header{}}
						s.ServeHTTP(cut, httptest.NewRequest(http.MethodGet, url(i), nil))
						kept := bytes.Clone(cut.body)
						s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, url(i+1), nil))
						if !bytes.Equal(kept, cut.body) {
							return fmt.Errorf("the answer to %s was changed while it was sent", url(i))
						}
					}
					return nil
				})
			}
			require.NoError(t, group.Wait())
		})
	}
}

// TestWatchCutKeepsFrames has a watch cut while HTTP/2 still has its frames to send: they stay as they
// are while other watches write.
func TestWatchCutKeepsFrames(t *testing.T) {
	for _, encoding := range []string{"", "zstd"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", encoding)
		cut, others := &keeping{header: http.Header{}}, httptest.NewRecorder()
		for range 20 { // a pool may forget, and does so under the race detector
			f := newFrameWriter(cut, r, &query{})
			require.NoError(t, f.event(store.Added, []byte(`{"some":"object"}`)))
			require.Error(t, f.flush())
			kept := bytes.Clone(cut.body)
			other := newFrameWriter(others, r, &query{})
			require.NoError(t, other.event(store.Deleted, []byte(`{"another":"one"}`)))
			require.NoError(t, other.flush())
			require.Equal(t, kept, cut.body, "encoding %q", encoding)
		}
	}
}
