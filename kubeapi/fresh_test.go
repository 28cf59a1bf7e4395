package kubeapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// TestStaleness pins the headers of answers while the server can't be reached.
func TestStaleness(t *testing.T) {
	const (
		list    = "/api/v1/pods"
		unknown = "2147483648"
		year    = 365 * 24 * time.Hour
	)
	tests := []struct {
		name      string
		staleness Staleness
		after     time.Duration
		code      int
		age       string
		warning   bool
	}{
		{"default", Staleness{}, 90 * time.Second, 200, "90", true},
		{"serve", Staleness{Policy: Serve}, time.Hour, 200, "3600", false},
		{"warn", Staleness{Policy: Warn}, time.Hour, 200, "3600", true},
		{"refuse, young", Staleness{Policy: Refuse, MaxAge: time.Hour}, time.Hour, 200, "3600", true},
		{"refuse, old", Staleness{Policy: Refuse, MaxAge: time.Hour}, time.Hour + time.Second, 503, "3601", false},
		{"serve, clock behind", Staleness{Policy: Serve}, -2 * time.Hour, 200, unknown, true},
		{"warn, clock behind", Staleness{Policy: Warn}, -26 * year, 200, unknown, true},
		{"refuse, clock behind", Staleness{Policy: Refuse, MaxAge: 1 << 62}, -2 * time.Hour, 503, unknown, false},
		{"refuse, clock ahead", Staleness{Policy: Refuse, MaxAge: year}, 14 * year, 503, "441504000", false},
	}
	inBubble(t, func(t *testing.T, w *world) {
		l := ask(t, w.server, list)
		require.Equal(t, "0", l.header.Get("Age"))
		require.Empty(t, l.header.Get("Warning"))
		for _, test := range tests {
			w.offline, w.since, w.staleness = true, time.Now().Round(0).Add(-test.after), test.staleness // as it is stored
			for _, u := range []string{list, list + "?resourceVersion=12", "/api/v1/namespaces/a/pods/x"} {
				l := ask(t, w.server, u)
				require.Equal(t, test.code, l.Code, test.name)
				require.Equal(t, test.age, l.header.Get("Age"), test.name)
				require.Equal(t, test.warning, l.header.Get("Warning") != "", test.name)
				require.Equal(t, test.age == unknown && test.warning, strings.Contains(l.header.Get("Warning"), "of unknown age"), test.name)
				require.Empty(t, l.header.Get("Retry-After"), "kubectl would ask ten times before it prints the error")
			}
		}
		for _, words := range []string{"the server can't be reached", "the server is busy"} {
			w.fault, w.since, w.staleness = words, time.Now().Add(-time.Hour), Staleness{}
			state := w.since.UTC().Format(time.RFC3339)
			require.Equal(t, `299 - "snapcache: `+words+`: this is the state of `+state+`"`, ask(t, w.server, list).header.Get("Warning"))
			w.staleness = Staleness{Policy: Refuse}
			require.Contains(t, ask(t, w.server, list).raw, words+" since "+state+", and pods that are older than 0s are not served")
		}
		require.Empty(t, open(t, w, "resourceVersion=12").texts(), "a client that has the state may wait for the next one")
	})
}

// TestProbe pins what a read of the newest state waits for.
func TestProbe(t *testing.T) {
	var fail error
	var probes int
	server := ""
	inBubble(t, func(t *testing.T, w *world) {
		fail, probes, server = nil, 0, "13"
		w.stop(false)
		w.probe = func(context.Context) (string, error) { probes++; return server, fail }
		w.start()
		go func() {
			time.Sleep(settleTime / 2)
			w.put("a/x", &pod{ns: "a", name: "x", uid: "1", app: "web"})
			w.deliver(1)
		}()
		l := ask(t, w.server, "/api/v1/pods")
		require.Equal(t, "13", l.Metadata.ResourceVersion, "the event that is on its way")
		require.Equal(t, 1, probes)
		synctest.Wait()

		server = "20" // of another resource
		began := time.Now()
		l = ask(t, w.server, "/api/v1/namespaces/a/pods/x")
		require.Equal(t, http.StatusOK, l.Code)
		require.Equal(t, settleTime, time.Since(began))
		require.Equal(t, "0", l.header.Get("Age"))
		ask(t, w.server, "/api/v1/pods?resourceVersion=0")
		require.Equal(t, 2, probes)
		began = time.Now()
		ask(t, w.server, "/api/v1/pods")
		require.Zero(t, time.Since(began), "no second wait for events on their way")
		require.Equal(t, 3, probes)
		server = "21"
		ask(t, w.server, "/api/v1/pods")
		require.Equal(t, settleTime, time.Since(began))

		fail, w.since = errors.New("no route"), time.Now().Add(-7*time.Second)
		l = ask(t, w.server, "/api/v1/pods")
		require.Equal(t, http.StatusOK, l.Code)
		require.Equal(t, "7", l.header.Get("Age"), "from the last proof")
		require.Contains(t, l.header.Get("Warning"), w.since.UTC().Format(time.RFC3339))
	})
}

// TestResourceVersionAhead pins the answer to a resourceVersion that the cache has not reached: 504,
// with which a client goes on with an older state, only if the server has not reached it either.
func TestResourceVersionAhead(t *testing.T) {
	for _, test := range []struct {
		name    string
		server  string // its newest state
		err     error
		offline bool
		code    int
	}{
		{"the server is behind", "14", nil, false, 504},
		{"the server is there", "15", nil, false, 429},
		{"the server is past it", "20", nil, false, 429},
		{"the server can't be asked", "", errors.New("no route"), false, 429},
		{"offline", "14", nil, true, 429},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.stop(false)
				w.probe = func(context.Context) (string, error) { return test.server, test.err }
				w.offline = test.offline
				w.start()
				for _, u := range []string{"?resourceVersion=15", "?limit=1&resourceVersionMatch=NotOlderThan&resourceVersion=15", "?resourceVersionMatch=Exact&resourceVersion=15", "/x?resourceVersion=15"} {
					began := time.Now()
					l := ask(t, w.server, "/api/v1/namespaces/a/pods"+u)
					require.Equal(t, test.code, l.Code, u)
					require.Equal(t, "1", l.header.Get("Retry-After"), u)
					require.Equal(t, waitLimit, time.Since(began), u)
				}
			})
		})
	}
}

// TestWaitOpensNoView: a read that waits for a resourceVersion looks at each state on the way, and opens
// a view only of the first one and of the last.
func TestWaitOpensNoView(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		views, view := 0, w.served.View
		w.served.View = func() (store.View, error) { views++; return view() }
		got := make(chan int)
		go func() {
			a := httptest.NewRecorder()
			w.server.ServeHTTP(a, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/a/pods/x?resourceVersion=32", nil))
			got <- a.Code
		}()
		synctest.Wait()
		for range 20 { // from 12
			w.change("a/x", "web", "n1")
		}
		require.Equal(t, http.StatusOK, <-got)
		require.Equal(t, 2, views)
	})
}

// A request that no collection covers is refused.
func TestRequestOutOfScope(t *testing.T) {
	info := store.Info{ID: "pods@a", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true, Namespace: "a", FieldSelector: "spec.nodeName=n1"}
	db := memory.New()
	defer func() { require.NoError(t, db.Close()) }()
	coll, err := db.Open(info)
	require.NoError(t, err)
	r, err := coll.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Commit(store.Checkpoint{RV: "10"}))
	c := &Collection{
		Info: func() store.Info { return info }, Description: described(store.Description{}), View: coll.View, State: coll.State,
		Events: NewEvents("10", clock.RealClock{}),
	}
	s := New(Options{Collections: func() []*Collection { return []*Collection{c} }})
	tests := []struct {
		name, url string
		code      int
	}{
		{"all", "/api/v1/pods", 403},
		{"another namespace", "/api/v1/namespaces/b/pods?fieldSelector=spec.nodeName%3Dn1", 403},
		{"another node", "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName%3Dn2", 403},
		{"the whole namespace", "/api/v1/namespaces/a/pods", 403},
		{"what is there", "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName%3Dn1", 200},
		{"less", "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName%3Dn1&labelSelector=app", 200},
		{"an object that may exist", "/api/v1/namespaces/a/pods/x", 403},
		{"watch of all", "/api/v1/pods?watch=1&timeoutSeconds=1", 403},
		{"watch of what is there", "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName%3Dn1&watch=1&timeoutSeconds=-1", 200},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, test.url, nil))
			require.Equal(t, test.code, w.Code, w.Body.String())
			if test.code == http.StatusForbidden {
				require.Contains(t, w.Body.String(), `"message":"pods is forbidden: the request asks for more than is cached here, `+
					`which is pods in the namespace a with the fields spec.nodeName=n1: narrow the request, or ask the kube-apiserver"`)
			}
		})
	}
}
