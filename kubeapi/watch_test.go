package kubeapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// started returns a world with the objects a/x and b/x, at the resourceVersions 11 and 12.
func started(t *testing.T, dir string) *world {
	w := newWorld(t, dir)
	w.put("a/x", &pod{ns: "a", name: "x", app: "web", node: "n1"})
	w.put("b/x", &pod{ns: "b", name: "x", app: "db"})
	w.start()
	w.list()
	synctest.Wait()
	t.Cleanup(w.close)
	return w
}

// change changes an object at the server, and delivers that.
func (w *world) change(key, app, node string) {
	ns, name, _ := strings.Cut(key, "/")
	p := &pod{ns: ns, name: name, app: app, node: node}
	if was := w.objects[key]; was != nil {
		p.uid = was.uid
	}
	w.put(key, p)
	w.deliver(1)
	synctest.Wait()
}

func (w *world) remove(key string) {
	w.put(key, nil)
	w.deliver(1)
	synctest.Wait()
}

// inBubble runs a test in a bubble.
func inBubble(t *testing.T, fn func(t *testing.T, w *world)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { fn(t, started(t, dir)) })
}

func open(t *testing.T, w *world, query string, header ...string) *stream {
	s := watch(t, w.server, false, "/api/v1/pods?watch=1&"+query, header...)
	t.Cleanup(s.close)
	synctest.Wait()
	return s
}

// TestWatchBegins pins what a watch begins with, from each resourceVersion, and which need a probe.
func TestWatchBegins(t *testing.T) {
	all := []string{"ADDED a/x@11", "ADDED b/x@12"}
	end := slices.Concat(all, []string{"BOOKMARK end@12"})
	const streaming = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	tests := []struct {
		name, query string
		want        []string
	}{
		{"unset", "", all},
		{"0", "resourceVersion=0", all},
		{"unset, bookmarks", "allowWatchBookmarks=true", end},
		{"the newest", "resourceVersion=12", nil},
		{"too new", "resourceVersion=1000", nil},
		{"too new, bookmarks", "resourceVersion=1000&allowWatchBookmarks=true", nil},
		{"before the history", "resourceVersion=5&allowWatchBookmarks=true", []string{"ERROR 410"}},
		{"streaming, no bookmarks", streaming, all},
		{"streaming", streaming + "&allowWatchBookmarks=true", end},
		{"streaming from 0", streaming + "&allowWatchBookmarks=true&resourceVersion=0", end},
		{"streaming from 11", streaming + "&allowWatchBookmarks=true&resourceVersion=11", end},
		{"none, unset", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", nil},
		{"none, 0", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0", nil},
	}
	inBubble(t, func(t *testing.T, w *world) {
		for _, test := range tests {
			probes := 0
			w.served.Probe = func(context.Context) (string, error) { probes++; return "12", nil }
			s := open(t, w, test.query)
			require.Equal(t, http.StatusOK, s.code, test.name)
			require.Equal(t, test.want, s.texts(), test.name)
			require.Equal(t, len(test.want) == 1, s.ended(), test.name)
			named := strings.Contains(test.query, "resourceVersion=")
			newest := !named && !strings.Contains(test.query, "sendInitialEvents=false")
			require.Equal(t, newest, probes == 1, "%s: %d probes: only the newest state needs one", test.name, probes)
		}
	})
}

func TestWatchTooNew(t *testing.T) {
	const streaming = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=1000"
	inBubble(t, func(t *testing.T, w *world) {
		s := open(t, w, strings.TrimPrefix(streaming, "/api/v1/pods?watch=1&"))
		require.False(t, s.ended())
		time.Sleep(waitLimit + time.Second)
		synctest.Wait()
		require.True(t, s.ended())
		require.Equal(t, []string{"ERROR 504"}, s.texts())
		require.Equal(t, http.StatusOK, s.code)

		w.offline, w.since = true, time.Now()
		l := ask(t, w.server, streaming)
		require.Equal(t, http.StatusTooManyRequests, l.Code)
		require.Equal(t, "1", l.header.Get("Retry-After"))

		w.offline = false
		s = open(t, w, "resourceVersion=15&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
		for range 3 {
			w.change("a/y", "web", "")
		}
		require.Equal(t, []string{"ADDED a/x@11", "ADDED a/y@15", "ADDED b/x@12"}, s.texts(), "the cache reached the resourceVersion in time")
	})
}

// A client that is ahead of the cache gets nothing, not even a bookmark, until the cache is past it.
func TestWatchAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := open(t, w, "resourceVersion=14&allowWatchBookmarks=true")
		time.Sleep(3 * time.Minute)
		w.change("a/y", "web", "")
		w.change("a/y", "db", "")
		require.Empty(t, s.texts())
		w.change("a/y", "web", "")
		require.Equal(t, []string{"MODIFIED a/y@15"}, s.texts())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"BOOKMARK @15"}, s.texts())
	})
}

func TestWatchNeverSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		w.start()
		defer w.close()
		for _, url := range []string{
			"/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/pods?watch=1&resourceVersion=10", "/api/v1/namespaces/a/pods/x",
			"/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		} {
			l := ask(t, w.server, url)
			require.Equal(t, http.StatusTooManyRequests, l.Code, url)
			require.Equal(t, "1", l.header.Get("Retry-After"), url)
		}
	})
}

func TestWatchBookmarks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := open(t, w, "resourceVersion=12&allowWatchBookmarks=true&timeoutSeconds=150")
		other := open(t, w, "resourceVersion=12&timeoutSeconds=150")
		w.rv = 20
		w.all()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.Empty(t, s.texts())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"BOOKMARK @20"}, s.texts(), "the server's bookmarks move an idle watch")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"BOOKMARK @20"}, s.texts())
		time.Sleep(28 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"BOOKMARK @20"}, s.texts(), "2 s before the end")
		require.False(t, s.ended())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.True(t, s.ended())
		require.False(t, s.cut)
		require.Empty(t, s.texts())
		require.True(t, other.ended())
		require.Empty(t, other.texts())
	})
}

// TestWatchStopped checks that a watch that the server ends as it stops has a bookmark at its end: after
// less than a second without an event or a bookmark, an informer lists again.
func TestWatchStopped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, test := range []struct {
			name, query string
			want        []string
		}{
			{"with bookmarks", "resourceVersion=12&allowWatchBookmarks=true", []string{"BOOKMARK @12"}},
			{"without", "resourceVersion=12", nil},
			{"of a client that is ahead", "resourceVersion=1000&allowWatchBookmarks=true", nil},
		} {
			s := open(t, w, test.query)
			s.close() // ends the context of the request, like the server
			require.Equal(t, test.want, s.texts(), test.name)
			require.False(t, s.cut, test.name)
		}
	})
}

// A watch that nothing concerns has the newest resourceVersion at its end.
func TestWatchLastBookmark(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := open(t, w, "resourceVersion=12&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dx")
		w.change("b/y", "web", "")
		require.Empty(t, s.texts())
		s.close() // as by a server that stops
		require.Equal(t, []string{"BOOKMARK @13"}, s.texts())
	})
}

func TestWatchTimeouts(t *testing.T) {
	tests := []struct {
		name, query string
		least, most time.Duration
	}{
		{"unset", "", 30 * time.Minute, time.Hour},
		{"0", "&timeoutSeconds=0", 30 * time.Minute, time.Hour},
		{"1", "&timeoutSeconds=1", time.Second, time.Second},
		{"negative", "&timeoutSeconds=-1", 0, 0},
	}
	inBubble(t, func(t *testing.T, w *world) {
		for _, test := range tests {
			began := time.Now()
			s := open(t, w, "resourceVersion=12"+test.query)
			<-s.done
			require.False(t, s.cut)
			require.GreaterOrEqual(t, time.Since(began), test.least, test.name)
			require.LessOrEqual(t, time.Since(began), test.most, test.name)
		}
	})
}

// An object that leaves the selection is deleted for the client: with the last body that it had there,
// under the resourceVersion of the event.
func TestWatchSelectorExit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := open(t, w, "resourceVersion=12&labelSelector=app%3Dweb")
		w.change("a/x", "db", "n2")
		w.change("a/x", "db", "n3")
		w.change("a/x", "web", "n3")
		w.change("a/x", "web", "n4")
		w.remove("a/x")
		frames := s.frames(10)
		var got []string
		for _, f := range frames {
			got = append(got, f.String()+" "+f.Object.Spec.NodeName+" "+f.Object.Metadata.Labels["app"])
		}
		require.Equal(t, []string{"DELETED a/x@13 n1 web", "ADDED a/x@15 n3 web", "MODIFIED a/x@16 n4 web", "DELETED a/x@17 n4 web"}, got)
		coalesced := func(query string) (got []string) {
			w.events.Skip(w.coll.State().RV) // the events are gone
			return open(t, w, "allowWatchBookmarks=true&labelSelector=app%3Dweb&"+query).texts()
		}
		require.Equal(t, []string{"DELETED a/x@13", "BOOKMARK @17"}, coalesced("resourceVersion=12"), "the first exit")
		require.Equal(t, []string{"BOOKMARK @17"}, coalesced("resourceVersion=14"))
		require.Equal(t, []string{"ERROR 410"}, open(t, w, "labelSelector=app%3Dweb&resourceVersion=12").texts(), "no bookmarks, no coalescing")
	})
}

// Changes that no event can describe end the watches that are open.
func TestWatchEnds(t *testing.T) {
	tests := []struct {
		name string
		do   func(w *world)
	}{
		{"an old correction", func(w *world) {
			require.NoError(w.t, w.queue.Correct("a/y", (&pod{ns: "a", name: "y", uid: "y", rv: 5}).object(), "12"))
		}},
		{"a correction that deletes", func(w *world) { require.NoError(w.t, w.queue.Correct("a/x", nil, "12")) }},
		{"a list of another history", func(w *world) { w.rv = 7; w.list() }},
		{"a list of other objects at the same resourceVersion", func(w *world) { w.objects = state{}; w.list() }},
		{"the end of the collection", func(w *world) { w.events.End() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				s := open(t, w, "resourceVersion=12&allowWatchBookmarks=true")
				test.do(w)
				synctest.Wait()
				require.Equal(t, []string{"ERROR 410"}, s.texts())
			})
		})
	}
	inBubble(t, func(t *testing.T, w *world) {
		s := open(t, w, "resourceVersion=12")
		require.NoError(t, w.queue.Correct("a/x", (&pod{ns: "a", name: "x", uid: "1", rv: 15}).object(), "12"))
		synctest.Wait()
		require.Empty(t, s.texts(), "a newer correction waits for its place")
		w.change("a/y", "web", "")
		require.Equal(t, []string{"ADDED a/y@13"}, s.texts())
		w.rv = 20
		w.all()
		synctest.Wait()
		require.Equal(t, []string{"MODIFIED a/x@15"}, s.texts())
	})
}

// Events of one resourceVersion, as of a lease that ends, are all delivered, also in two batches.
func TestEqualResourceVersions(t *testing.T) {
	gone := func(key string) store.Transition {
		ns, name, _ := strings.Cut(key, "/")
		o := (&pod{ns: ns, name: name, uid: "1", rv: 20}).object()
		return store.Transition{Type: store.Deleted, Key: key, RV: "20", Object: o, Old: o}
	}
	inBubble(t, func(t *testing.T, w *world) {
		s := open(t, w, "resourceVersion=12")
		w.events.Record([]store.Transition{gone("a/1"), gone("a/2")}, "20")
		synctest.Wait()
		require.Equal(t, []string{"DELETED a/1@20", "DELETED a/2@20"}, s.texts())
		w.events.Record([]store.Transition{gone("a/3")}, "20")
		synctest.Wait()
		require.Equal(t, []string{"DELETED a/3@20"}, s.texts())
		w.events.Record([]store.Transition{gone("a/4")}, "21")
		synctest.Wait()
		require.Equal(t, []string{"DELETED a/4@20"}, s.texts())
		require.Empty(t, open(t, w, "resourceVersion=20").texts())
		w.events.maxBytes = 1
		w.events.Record(nil, "22")
		require.False(t, w.has("12"))
		require.True(t, w.has("20"))
	})
}

// The store may hold the objects for hours before its loop runs.
func TestWatchBeforeLoopRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.change("a/x", "web", "n2")
		w.stop(false)
		w.open()
		require.Equal(t, []string{"MODIFIED a/x@13", "BOOKMARK @13"}, open(t, w, "resourceVersion=12&allowWatchBookmarks=true").texts())
		require.Equal(t, http.StatusGone, ask(t, w.server, "/api/v1/pods?resourceVersion=12&resourceVersionMatch=Exact").Code)
		w.events.End() // as before they have begun
		s := open(t, w, "resourceVersion=12&allowWatchBookmarks=true")
		require.Equal(t, []string{"MODIFIED a/x@13", "BOOKMARK @13"}, s.texts())
		require.Equal(t, http.StatusGone, ask(t, w.server, "/api/v1/pods?resourceVersion=12&resourceVersionMatch=Exact").Code)
		w.run()
		w.change("a/x", "web", "n3")
		require.Equal(t, []string{"MODIFIED a/x@14"}, s.texts())
	})
}

// An informer that was away for an hour gets exactly what has changed.
func TestWatchAfterAnHour(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for i := range 60 {
			time.Sleep(time.Minute)
			w.change("a/x", "web", "n"+strconv.Itoa(i))
			w.change("a/y", "web", "")
			w.remove("a/y")
			if i == 30 {
				w.stop(false)
				w.start()
			}
		}
		w.remove("b/x")
		last := w.rv
		s := open(t, w, "resourceVersion=12&allowWatchBookmarks=true")
		require.Equal(t, []string{
			"MODIFIED a/x@" + strconv.Itoa(last-3), "DELETED b/x@" + strconv.Itoa(last), "BOOKMARK @" + strconv.Itoa(last),
		}, s.texts())
		s = open(t, w, "resourceVersion="+strconv.Itoa(last-3))
		require.Equal(t, []string{
			"ADDED a/y@" + strconv.Itoa(last-2), "DELETED a/y@" + strconv.Itoa(last-1), "DELETED b/x@" + strconv.Itoa(last),
		}, s.texts(), "the newest are still there")
	})
}

// Events are kept as soon as a client has listed, for as long as it may come back to watch.
func TestEventsKeptForExpectedWatch(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		w.always = false
		w.start()
		t.Cleanup(w.close)
		w.list()
		synctest.Wait()
		w.change("a/x", "web", "n1")
		require.Empty(t, w.events.events, "no events are kept without a client")

		w.queue.Flush() // a batch with nothing else
		synctest.Wait()
		flushed := time.Now()
		rv := ask(t, w.server, "/api/v1/pods").Metadata.ResourceVersion
		require.Equal(t, flushed, time.Now(), "no later batch is waited for")
		for i := range 4 {
			time.Sleep(time.Minute)
			w.change("a/x", "web", "m"+strconv.Itoa(i))
		}
		s := open(t, w, "resourceVersion="+rv)
		require.Len(t, s.texts(), 4)
		s.close()
		synctest.Wait()
		time.Sleep(EventsAge - time.Second)
		w.change("a/x", "web", "n2")
		require.NotEmpty(t, w.events.events)
		time.Sleep(2 * time.Second)
		w.change("a/x", "web", "n3")
		require.Empty(t, w.events.events, "no client has come back")

		require.False(t, w.events.Wanted(false)) // as the loop does before a batch
		listed := make(chan string, 1)
		go func() { listed <- ask(t, w.server, "/api/v1/pods").Metadata.ResourceVersion }()
		synctest.Wait()
		require.Empty(t, listed, "its state would have no events")
		w.events.Skip(w.coll.State().RV)
		require.Equal(t, w.coll.State().RV, <-listed)
		w.change("a/x", "web", "n4")
		require.Len(t, open(t, w, "resourceVersion="+strconv.Itoa(w.rv-1)).texts(), 1)

		require.False(t, w.events.attributesWanted(false)) // as the store does in a batch
		go func() { listed <- ask(t, w.server, "/api/v1/pods?labelSelector=app").Metadata.ResourceVersion }()
		synctest.Wait()
		require.Empty(t, listed, "the history would not have what it needs")
		w.events.Skip(w.coll.State().RV)
		require.Equal(t, w.coll.State().RV, <-listed)
	})
}

// The history keeps attributes while a client with a selector may come back for them.
func TestAttributesKeptForExpectedWatch(t *testing.T) {
	const ofNode = "fieldSelector=spec.nodeName%3Dn1&resourceVersion="
	idle := func(*testing.T, *world) { time.Sleep(2 * EventsAge) }
	restart := func(_ *testing.T, w *world) {
		w.stop(false)
		w.start()
	}
	touch := func(_ *testing.T, w *world) { w.change("a/x", "web", "") }
	list := func(t *testing.T, w *world) { ask(t, w.server, "/api/v1/pods?labelSelector=app%3Dweb") }
	follow := func(t *testing.T, w *world) {
		open(t, w, ofNode+strconv.Itoa(w.rv)+"&allowWatchBookmarks=true").close()
	}
	tests := []struct {
		name  string
		steps []func(*testing.T, *world)
		kept  bool
	}{
		{name: "no client"},
		{name: "after a restart", steps: []func(*testing.T, *world){restart}, kept: true},
		{name: "long after a restart", steps: []func(*testing.T, *world){restart, touch, idle}},
		{name: "a list", steps: []func(*testing.T, *world){list}, kept: true},
		{name: "a list long ago", steps: []func(*testing.T, *world){list, idle}},
		{name: "a cache", steps: []func(*testing.T, *world){follow, idle}, kept: true},
		{name: "a cache of names", steps: []func(*testing.T, *world){func(t *testing.T, w *world) {
			open(t, w, "fieldSelector=metadata.name%3Dx&allowWatchBookmarks=true&resourceVersion="+strconv.Itoa(w.rv)).close()
		}}},
		{name: "a watch without bookmarks", steps: []func(*testing.T, *world){func(t *testing.T, w *world) {
			open(t, w, ofNode+strconv.Itoa(w.rv)).close()
		}, idle}},
		{name: "a cache of before the start", steps: []func(*testing.T, *world){follow, touch, restart, touch, idle}, kept: true},
		{name: "a cache, then a list", steps: []func(*testing.T, *world){follow, list, idle}, kept: true},
		{name: "a cache longer ago than any history", steps: []func(*testing.T, *world){follow, func(*testing.T, *world) {
			time.Sleep(AttributesAge)
		}}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, dir)
				w.always = false
				w.start()
				t.Cleanup(w.close)
				w.list()
				synctest.Wait()
				for _, step := range tc.steps {
					step(t, w)
				}
				w.change("a/x", "web", "n1")
				rv := strconv.Itoa(w.rv)
				w.change("a/x", "web", "n2")
				w.events.Skip(w.coll.State().RV) // the events are gone
				want := "ERROR 410"
				if tc.kept {
					want = "DELETED a/x@" + strconv.Itoa(w.rv)
				}
				require.Equal(t, want, open(t, w, ofNode+rv+"&allowWatchBookmarks=true").texts()[0])
			})
		})
	}
}

// A store without a history has the newest events alone: a watch from before them, or a list at such a state,
// gets 410.
func TestWatchWithoutHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t, "")
		w.change("a/x", "web", "n2") // 13
		w.change("b/x", "web", "n2")
		for _, rest := range []string{"", "&allowWatchBookmarks=true", "&labelSelector=app%3Dweb&allowWatchBookmarks=true"} {
			require.Len(t, open(t, w, "resourceVersion=13"+rest).texts(), 1, rest)
		}
		w.events.Skip("14") // the events are gone
		for _, rest := range []string{"", "&allowWatchBookmarks=true", "&labelSelector=app%3Dweb&allowWatchBookmarks=true"} {
			s := open(t, w, "resourceVersion=13"+rest)
			require.Contains(t, string(s.written()), "too old resource version: 13 (14)", rest)
			require.Equal(t, []string{"ERROR 410"}, s.texts(), rest)
			require.Empty(t, open(t, w, "resourceVersion=14"+rest).texts(), rest)
		}
		old := ask(t, w.server, "/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=13")
		require.Equal(t, http.StatusGone, old.Code)
	})
}

// What was not recorded is not left out.
func TestWatchUnrecordedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		w.always, w.takes, w.repeats = false, time.Second, true
		w.start()
		t.Cleanup(w.close)
		w.list()
		synctest.Wait()
		w.put("a/y", &pod{ns: "a", name: "y"})
		w.put("a/y", nil)
		w.deliver(2)
		w.drain()
		require.Equal(t, strconv.Itoa(w.rv), w.coll.State().RV)
		require.False(t, w.has("10"))
	})
}

// The store never had an object that was created and deleted between two of its checkpoints: a client
// of another server, or from before a crash, may have it.
func TestWatchFromGap(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.put("a/y", &pod{ns: "a", name: "y"})
		w.put("a/y", nil)
		w.list()
		synctest.Wait()
		require.Equal(t, []string{"ERROR 410"}, open(t, w, "resourceVersion=13&allowWatchBookmarks=true").texts())
		require.Equal(t, []string{"BOOKMARK @14"}, open(t, w, "resourceVersion=12&allowWatchBookmarks=true").texts())
		require.Empty(t, open(t, w, "resourceVersion=14&allowWatchBookmarks=true").texts())
		for _, tc := range []struct {
			rv   string
			code int
		}{{"12", http.StatusOK}, {"13", http.StatusGone}, {"14", http.StatusOK}} {
			require.Equal(t, tc.code, ask(t, w.server, "/api/v1/pods?resourceVersionMatch=Exact&resourceVersion="+tc.rv).Code, tc.rv)
		}

		w.takes, w.repeats = time.Second, true
		w.stop(false)
		w.start()
		w.put("a/x", &pod{ns: "a", name: "x", uid: "1", app: "db"}) // 15
		w.put("a/y", &pod{ns: "a", name: "y"})
		w.put("a/y", nil)
		w.put("a/x", &pod{ns: "a", name: "x", uid: "1", app: "web"})
		w.put("a/z", &pod{ns: "a", name: "z"})
		w.deliver(5)
		w.drain()
		w.stop(false)
		w.start()
		require.Equal(t, "19", w.coll.State().RV)
		for _, tc := range []struct{ rv, want string }{
			{"12", "MODIFIED a/x@18"}, {"13", "ERROR 410"}, {"14", "MODIFIED a/x@18"}, {"15", "ERROR 410"}, {"17", "ERROR 410"}, {"18", "ADDED a/z@19"},
		} {
			require.Equal(t, tc.want, open(t, w, "resourceVersion="+tc.rv+"&allowWatchBookmarks=true").texts()[0], tc.rv)
		}
	})
}

// A selector of names continues from any history, any other from one with attributes.
func TestReplayWithoutAttributes(t *testing.T) {
	tests := []struct{ name, query, want string }{
		{"name", "fieldSelector=metadata.name%3Dx,metadata.namespace%3Da", "MODIFIED a/x@13"},
		{"other name", "fieldSelector=metadata.name%3Dy", "BOOKMARK @13"},
		{"not the name", "fieldSelector=metadata.name%21%3Dy", "MODIFIED a/x@13"},
		{"name and label", "fieldSelector=metadata.name%3Dx&labelSelector=app", "ERROR 410"},
		{"field", "fieldSelector=spec.nodeName%3Dn2", "ERROR 410"},
	}
	inBubble(t, func(t *testing.T, w *world) {
		w.stop(false)
		w.bare = true
		w.start()
		w.change("a/x", "web", "n2")
		w.stop(false)
		w.start()
		for _, test := range tests {
			s := open(t, w, "resourceVersion=12&allowWatchBookmarks=true&"+test.query)
			require.Equal(t, test.want, s.texts()[0], test.name)
		}
	})
}

// An object that left the selection and came back has both events in their places: a client that
// stops between them continues without it.
func TestReplaySelectorExit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.change("a/x", "db", "n1")  // 13
		w.change("b/x", "web", "n1") // 14
		w.change("a/x", "web", "n1")
		w.change("a/y", "web", "n1")
		w.change("a/x", "web", "n2") // 17
		replayed := func(rv string) []string {
			w.events.Skip(w.coll.State().RV)
			return open(t, w, "labelSelector=app%3Dweb&allowWatchBookmarks=true&resourceVersion="+rv).texts()
		}
		require.Equal(t, []string{"DELETED a/x@13", "ADDED b/x@14", "ADDED a/y@16", "ADDED a/x@17", "BOOKMARK @17"}, replayed("12"))
		require.Equal(t, []string{"ADDED b/x@14", "ADDED a/y@16", "ADDED a/x@17", "BOOKMARK @17"}, replayed("13"))
		w.remove("a/x") // before a client that stopped at 14 has it
		require.Equal(t, []string{"ADDED a/y@16", "BOOKMARK @18"}, replayed("14"))
		require.Equal(t, []string{"ADDED a/y@16", "DELETED a/x@18", "BOOKMARK @18"}, replayed("15"))
	})
}

// Only watches that continue are counted as resumes.
func TestResumesAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m := NewMetrics()
		w.server = New(Options{Collections: w.server.opts.Collections, Metrics: m})
		for _, query := range []string{
			"", "resourceVersion=0", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
			"sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "resourceVersion=12", "resourceVersion=11&allowWatchBookmarks=true",
		} {
			open(t, w, query)
		}
		for tier, want := range map[string]float64{"exact": 1, "coalesced": 1, "expired": 0} {
			var got dto.Metric
			require.NoError(t, m.resumes.WithLabelValues("pods", tier).Write(&got))
			require.Equal(t, want, got.GetCounter().GetValue(), tier)
		}
	})
}
