package repair

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDamages_Bounded checks that a bounded number is remembered, and each record counts once.
func TestDamages_Bounded(t *testing.T) {
	d := NewDamages()
	for i := range 3 * maxCorrupt {
		for range 2 {
			d.Note("pods", fmt.Sprint(i))
		}
	}
	require.Len(t, d.keys("pods"), maxCorrupt)
	corrupt, found := d.Count("pods")
	require.EqualValues(t, maxCorrupt, corrupt)
	require.EqualValues(t, maxCorrupt, found)
	corrupt, found = d.Count("nodes")
	require.Zero(t, corrupt)
	require.Empty(t, d.keys("nodes"))
	require.Zero(t, found)

	d.set("pods", "0", nil)
	d.Note("pods", "0")
	_, found = d.Count("pods")
	require.EqualValues(t, maxCorrupt+1, found, "a key that is corrupt again is counted again")
	<-d.noticed
	require.Empty(t, d.noticed)
}

// TestFetch checks that the server's answer is queued. Only if it has had no object twice is that
// queued too: the first time the watch is about to send the deletion.
func TestFetch(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"shop","name":"a","uid":"u","resourceVersion":"5"}}`
	const none = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{"name":"a","kind":"pods"},"code":404}`
	for _, x := range []struct {
		name    string
		code    int
		body    string
		wasGone bool
		queued  int
		gone    bool
		fails   bool
	}{
		{"object", 200, pod, false, 1, false, false},
		{"back again", 200, pod, true, 1, false, false},
		{"nothing", 404, none, false, 0, true, false},
		{"still none", 404, none, true, 1, true, false},
		{"no path", 404, "404 page not found", true, 0, false, true},
		{"forbidden", 403, "no", true, 0, false, true},
	} {
		t.Run(x.name, func(t *testing.T) {
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
			queue.Start("4")
			source, log := cluster.Source(upstream.SourceOptions{Resource: pods}), slog.New(slog.DiscardHandler)
			if x.queued > 0 {
				_, err := fetch(t.Context(), source, queue, log, "shop/a", x.wasGone, "3")
				require.ErrorIs(t, err, deltafifo.ErrChanged, "the watch has brought 4 since")
			}
			gone, err := fetch(t.Context(), source, queue, log, "shop/a", x.wasGone, "4")
			require.Equal(t, x.fails, err != nil, "%v", err)
			require.Equal(t, x.gone, gone)
			require.Equal(t, x.queued, queue.Len())
		})
	}
}

// TestRepair_LogsOnce checks that a corrupt record is logged by the first pass that finds it.
func TestRepair_LogsOnce(t *testing.T) {
	var log strings.Builder
	c := collection.New(collection.Spec{ID: "pods"}, collection.Options{Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	r := Repairer{Damages: NewDamages(), Clock: clock.RealClock{}}
	r.Damages.Note("pods", "shop/a")
	for range 3 {
		r.repair(t.Context(), c, rate.NewLimiter(requestsPerSecond, 1))
	}
	require.Equal(t, 1, strings.Count(log.String(), "a stored record is corrupt"), log.String())
}
