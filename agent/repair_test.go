package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/upstream"
)

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Offline a damaged record is left out, told in status, log and metrics, and stays
// where it is.
func TestDamagedRecordOffline(t *testing.T) {
	n := newNode(t, podsOnly+"\nmetrics: {address: 127.0.0.1:0}\n")
	n.seed(t)
	raw, err := bbolt.Open(n.cfg.Store.Path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("c")).Bucket([]byte("pods")).Bucket([]byte("g1")).Bucket([]byte("objects"))
		record := bytes.Clone(b.Get([]byte("shop/a")))
		record[len(record)-1] ^= 1
		meta := tx.Bucket([]byte("meta"))
		last := binary.BigEndian.AppendUint64(nil, uint64(tx.ID()))
		return errors.Join(
			b.Put([]byte("shop/a"), record),
			meta.Put([]byte("last"), append(last, meta.Get([]byte("last"))[8:]...)), // no writes were lost
		)
	}))
	require.NoError(t, raw.Close())
	var log logged
	client, stop := n.run(t, &log)
	for range 3 {
		var keys []string
		err := client.Objects(t.Context(), "pods", localapi.ObjectQuery{}, func(o *object.Object) error {
			keys = append(keys, o.Key())
			return nil
		})
		require.ErrorAs(t, err, new(*localapi.DamageError))
		require.Equal(t, []string{"shop/b"}, keys)
	}
	require.Eventually(t, func() bool {
		status, err := client.Status(t.Context())
		require.NoError(t, err)
		return status.Collections[0].ID == "pods" && status.Collections[0].DamagedRecords == 1 &&
			strings.Contains(log.String(), "a stored record is damaged")
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, stop())
	require.Equal(t, 1, strings.Count(log.String(), "a stored record is damaged"), log.String())
	require.Contains(t, log.String(), "key=shop/a")
}

// What is remembered is bounded, and each record counts once.
func TestDamagesAreBounded(t *testing.T) {
	d := newDamages()
	for i := range 3 * maxDamaged {
		for range 2 {
			d.note("pods", fmt.Sprint(i))
		}
	}
	asked, found := d.of("pods")
	require.Len(t, asked, maxDamaged)
	require.EqualValues(t, maxDamaged, found)
	asked, found = d.of("nodes")
	require.Empty(t, asked)
	require.Zero(t, found)

	d.mended("pods", "0")
	d.note("pods", "0")
	_, found = d.of("pods")
	require.EqualValues(t, maxDamaged+1, found, "it was damaged again")
	<-d.noticed
	require.Empty(t, d.noticed)
}

// What the server answers goes to the queue. That it has nothing must stay so for a
// while: the watch is to say when the object was deleted.
func TestFetch(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"shop","name":"a","uid":"u","resourceVersion":"5"}}`
	const none = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{"name":"a","kind":"pods"},"code":404}`
	for name, x := range map[string]struct {
		code    int
		body    string
		wasGone bool
		queued  int
		gone    bool
		fails   bool
	}{
		"object":     {200, pod, false, 1, false, false},
		"back again": {200, pod, true, 1, false, false},
		"nothing":    {404, none, false, 0, true, false},
		"still none": {404, none, true, 1, true, false},
		"no path":    {404, "404 page not found", true, 0, false, true},
		"forbidden":  {403, "no", true, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(x.code)
				_, _ = w.Write([]byte(x.body))
			}))
			defer srv.Close()
			cluster, err := upstream.New(&rest.Config{Host: srv.URL})
			require.NoError(t, err)
			defer cluster.Close()
			pods := upstream.Resource{GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Namespaced: true}
			queue := deltafifo.New(deltafifo.Options{})
			gone, err := fetch(t.Context(), cluster.Source(upstream.SourceOptions{Resource: pods}), queue, slog.New(slog.DiscardHandler), "shop/a", x.wasGone)
			require.Equal(t, x.fails, err != nil, "%v", err)
			require.Equal(t, x.gone, gone)
			require.Equal(t, x.queued, queue.Len())
		})
	}
}
