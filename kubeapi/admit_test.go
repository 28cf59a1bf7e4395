package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/seats"
	"github.com/snapcache/snapcache/internal/spool"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
)

// fleet serves s to clients that name themselves: the users and the connections that a server behind TLS
// knows.
func fleet(s http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = r.Header.Get("Connection-Name")
		ctx := access.WithCaller(r.Context(), &access.Caller{User: authenticationv1.UserInfo{Username: r.Header.Get("User")}})
		s.ServeHTTP(w, r.WithContext(ctx))
	})
}

// spoke is a client of a fleet.
type spoke struct {
	client           *http.Client
	user, connection string
}

func (c spoke) get(t *testing.T, target string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+target, nil)
	require.NoError(t, err)
	r.Header.Set("User", c.user)
	r.Header.Set("Connection-Name", c.connection)
	answer, err := c.client.Do(r)
	require.NoError(t, err)
	return answer
}

// TestFleetLists: a fleet that lists all at once, and does not read, costs a bounded part of the memory and
// the disk, delays no client that resumes, and gets its lists once others read or leave.
func TestFleetLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const spokes, objects, size = 300, 5000, 300
		const maxHeap, listBytes = 128 << 20, objects * (size + 200)
		dir := t.TempDir()
		db, err := bolt.Open(filepath.Join(dir, "db"), bolt.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		c := newCached(t, db, objects, size)
		p, closeAll := serveOnPipe(t, fleet(c.server(dir)), io.Discard)
		defer closeAll()
		first := c.rv
		c.add(t, "for the history")
		c.Events.Skip(strconv.Itoa(c.rv))
		before := heap()

		refused := map[string]int{} // by Retry-After
		var mu sync.Mutex
		read := make(chan struct{})
		var served atomic.Int64
		var all sync.WaitGroup
		for i := range spokes {
			all.Go(func() {
				me := spoke{p.client(false), "fleet", fmt.Sprint(i)}
				defer me.client.CloseIdleConnections()
				for {
					answer := me.get(t, "/api/v1/configmaps?resourceVersion=0")
					if answer.StatusCode == http.StatusTooManyRequests {
						wait := answer.Header.Get("Retry-After")
						mu.Lock()
						refused[wait]++
						mu.Unlock()
						require.NoError(t, answer.Body.Close())
						seconds, err := strconv.Atoi(wait)
						require.NoError(t, err)
						time.Sleep(time.Duration(seconds) * time.Second)
						continue
					}
					<-read
					if i%5 != 0 { // it leaves instead
						require.NoError(t, answer.Body.Close())
						return
					}
					n, err := io.Copy(io.Discard, answer.Body)
					require.NoError(t, answer.Body.Close())
					if err != nil {
						continue // it was cut, since it did not read
					}
					if n < objects*size {
						t.Errorf("the list has %d bytes", n)
					}
					served.Add(1)
					return
				}
			})
		}
		synctest.Wait() // until all that are let in are stuck, and the others wait
		grown, files := heap()-before, spoolFiles(t)
		t.Logf("%d lists are sent, with %d MiB of memory", len(files), grown>>20)
		require.Less(t, grown, int64(maxHeap))
		require.LessOrEqual(t, len(files), listSeats/2, "of one user")
		require.NotEmpty(t, files)
		for _, bytes := range files {
			require.Less(t, bytes, int64(listBytes))
		}

		began := time.Now()
		for _, other := range []spoke{{p.client(false), "other", "a"}, {p.client(false), "fleet", "another"}} {
			for _, rv := range []int{first, c.rv} { // from the stored history, and from memory
				watch := other.get(t, fmt.Sprintf("/api/v1/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion=%d", rv))
				if rv == c.rv {
					c.add(t, "an event")
				}
				var frame struct{ Type string }
				require.NoError(t, json.NewDecoder(watch.Body).Decode(&frame))
				require.Equal(t, "ADDED", frame.Type)
				require.NoError(t, watch.Body.Close())
				c.Events.Skip(strconv.Itoa(c.rv))
			}
			other.client.CloseIdleConnections()
		}
		require.Zero(t, time.Since(began), "a resumed watch waited behind the lists")

		time.Sleep(waitLimit + time.Second)
		mu.Lock()
		refusals := maps.Clone(refused)
		mu.Unlock()
		t.Logf("refused, by Retry-After: %v", refusals)
		require.Greater(t, len(refusals), 3)
		for _, n := range refusals {
			require.LessOrEqual(t, n, 2*retryRate)
		}
		close(read)
		all.Wait()
		require.EqualValues(t, spokes/5, served.Load())
		t.Logf("all have their list or are gone after %v", time.Since(began))
		require.Less(t, time.Since(began), 2*time.Minute)
		time.Sleep(time.Minute) // for what net/http still has to end
		require.Empty(t, spoolFiles(t))
	})
}

// TestSlowListsDelayNoOtherUser: a user that reads its lists slowly does not delay those of another
// one, nor one of its connections all others.
func TestSlowListsDelayNoOtherUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCached(t, memory.New(), 1, 10).server("")
		read := make(chan struct{})
		list := func(w http.ResponseWriter, user, connection string) {
			s.ServeHTTP(w, from(t.Context(), user, connection, "/api/v1/configmaps?resourceVersion=0"))
		}
		for range 10 * listSeats {
			go list(stuckWriter{httptest.NewRecorder(), read}, "slow", "a")
		}
		synctest.Wait()
		require.Equal(t, listSeats/3+1, taken(s.lists))
		for _, client := range [][2]string{{"slow", "b"}, {"other", "a"}} {
			w, began := httptest.NewRecorder(), time.Now()
			list(w, client[0], client[1])
			require.Equal(t, http.StatusOK, w.Code)
			require.Zero(t, time.Since(began))
		}
		more := httptest.NewRecorder()
		list(more, "slow", "a")
		require.Equal(t, http.StatusTooManyRequests, more.Code)
		close(read)
		synctest.Wait()
		require.Zero(t, taken(s.lists))
		for range 2 * listSeats { // one after the other
			last := httptest.NewRecorder()
			list(last, "slow", "a")
			require.Equal(t, http.StatusOK, last.Code)
		}
	})
}

// TestListWaitsForSeats checks that a list that finds too many others waits for one of them to end.
func TestListWaitsForSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCached(t, memory.New(), 1, 10).server("")
		all, err := s.lists.Take(t.Context(), seats.Client{User: "other"}, listSeats, false, nil)
		require.NoError(t, err)
		time.AfterFunc(waitLimit/2, all.Leave)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/configmaps", nil))
		require.Equal(t, http.StatusOK, w.Code)
	})
}

// TestRefusedListRetryAfter: those of a fleet that are refused come again one after the other, but a
// list that has begun goes on soon.
func TestRefusedListRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(t, memory.New(), 3, 10)
		s := c.server("")
		part := ask(t, s, "/api/v1/configmaps?limit=1")
		require.NotEmpty(t, part.Metadata.Continue)
		all, err := s.lists.Take(t.Context(), seats.Client{User: "other"}, listSeats, false, nil)
		require.NoError(t, err)
		defer all.Leave()
		var mu sync.Mutex
		after := map[int]int{}
		var clients sync.WaitGroup
		for i := range 1000 {
			clients.Go(func() {
				w := httptest.NewRecorder()
				s.ServeHTTP(w, from(t.Context(), "fleet", strconv.Itoa(i), "/api/v1/configmaps"))
				require.Equal(t, http.StatusTooManyRequests, w.Code)
				seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
				require.NoError(t, err)
				require.Contains(t, w.Body.String(), fmt.Sprintf(`"retryAfterSeconds":%d`, seconds))
				mu.Lock()
				defer mu.Unlock()
				after[seconds]++
			})
		}
		clients.Wait()
		total := 0
		for seconds := 1; seconds <= 1000/retryRate; seconds++ {
			require.LessOrEqual(t, after[seconds], 2*retryRate, seconds)
			total += after[seconds]
		}
		require.Equal(t, 1000, total)
		require.Equal(t, 1000, int(valueOf(t, s.opts.Metrics.refused.WithLabelValues(string(RefusedLists)))))
		next := ask(t, s, "/api/v1/configmaps?limit=1&continue="+part.Metadata.Continue)
		require.Equal(t, http.StatusTooManyRequests, next.Code)
		require.Equal(t, "1", next.header.Get("Retry-After"))
	})
}

// TestNextPageGoesFirst: the next page of a list goes before a list that has not begun.
func TestNextPageGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCached(t, memory.New(), 3, 10).server("")
		part := ask(t, s, "/api/v1/configmaps?limit=1")
		all, err := s.lists.Take(t.Context(), seats.Client{User: "other"}, listSeats, false, nil)
		require.NoError(t, err)
		var order []string
		var mu sync.Mutex
		one := make(chan struct{}) // each has all the seats until it is read
		list := func(name, query string) {
			w := orderedWriter{httptest.NewRecorder(), sync.OnceFunc(func() {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			}), one}
			s.ServeHTTP(w, from(t.Context(), "fleet", name, "/api/v1/configmaps?"+query))
		}
		go list("first", "resourceVersion=0")
		synctest.Wait()
		go list("next page", "limit=1&continue="+part.Metadata.Continue)
		synctest.Wait()
		all.Narrow(listSeats - 1)
		synctest.Wait()
		require.Equal(t, []string{"next page"}, order)
		close(one)
		synctest.Wait()
		require.Equal(t, []string{"next page", "first"}, order)
		all.Leave()
	})
}

// orderedWriter calls wrote with a write, which ends when it is read.
type orderedWriter struct {
	*httptest.ResponseRecorder
	wrote func()
	read  chan struct{}
}

func (w orderedWriter) Write(p []byte) (int, error) {
	w.wrote()
	<-w.read
	return w.ResponseRecorder.Write(p)
}

// TestProbeHoldsNoSeat: what waits for the server does not keep lists waiting that need not ask it.
func TestProbeHoldsNoSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(t, memory.New(), 1, 10)
		c.Freshness = func() Freshness { return Freshness{Connected: true} }
		c.Probe = func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		s := c.server("")
		var fresh sync.WaitGroup
		for range 3 * listSeats {
			fresh.Go(func() {
				s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/configmaps", nil))
			})
		}
		synctest.Wait()
		require.Zero(t, taken(s.lists))
		began := time.Now()
		require.Equal(t, http.StatusOK, ask(t, s, "/api/v1/configmaps?resourceVersion=0").Code)
		require.Zero(t, time.Since(began))
		fresh.Wait()
	})
}

// TestListWidth: a list takes seats by its bytes, and once it is copied by those that were selected.
func TestListWidth(t *testing.T) {
	for _, tc := range []struct {
		name, query string
		bytes       int64
		want        int
	}{
		{"small", "", 1000, 1},
		{"large", "", 100 << 20, 7},
		{"huge", "", 1 << 40, maxWidth},
		{"a page", "limit=10", 100 << 20, 1},
		{"a large page", "limit=500", 100 << 20, 4},
		{"a page of all", "limit=1000", 100 << 20, 7},
		{"a page at 0, which is all", "limit=10&resourceVersion=0", 100 << 20, 7},
		{"a page of a selection, which may take all to find", "limit=10&labelSelector=a%3Db", 100 << 20, 7},
		{"one object", "fieldSelector=metadata.name%3Dx", 1 << 40, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newCached(t, memory.New(), 1, 10).server("")
			r := newRequest(httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?"+tc.query, nil))
			q, err := newQuery(r, s.route(r))
			require.NoError(t, err)
			require.Equal(t, tc.want, q.width(store.State{Count: 1000, Bytes: tc.bytes}))
		})
	}
	all := seats.New(listSeats, 0)
	seat, err := all.Take(t.Context(), seats.Client{}, maxWidth, false, nil)
	require.NoError(t, err)
	x := &transfer{spool.New(t.TempDir()), seat}
	for range 20 {
		require.NoError(t, x.Add(bytes.Repeat([]byte("x"), 1<<20), store.Record{}))
	}
	require.Equal(t, maxWidth, taken(all))
	x.Finish(nil)
	require.Equal(t, 2, taken(all))
	x.free()
	x.free()
	require.Zero(t, taken(all))
}

// TestReplayWaitsForSeats: a watch that finds too many replays waits as long as it lasts, and is
// authorized again before it gets what it has waited for.
func TestReplayWaitsForSeats(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.change("a/x", "db", "n1")
		w.events.Skip(strconv.Itoa(w.rv))
		var forbidden atomic.Bool
		w.server.opts.Authorize = func(_ context.Context, ask access.Request) error {
			if ask.Continues && forbidden.Load() {
				return errors.New("withdrawn")
			}
			return nil
		}
		lists, err := w.server.lists.Take(t.Context(), seats.Client{User: "other"}, listSeats, false, nil)
		require.NoError(t, err)
		defer lists.Leave()
		resume := func(query string) *stream {
			return open(t, w, "resourceVersion=12&allowWatchBookmarks=true"+query)
		}
		want := []string{"MODIFIED a/x@13", "BOOKMARK @13"}
		require.Equal(t, want, resume("").texts(), "lists are not in its way")

		all, err := w.server.replays.Take(t.Context(), seats.Client{User: "other"}, replaySeats, false, nil)
		require.NoError(t, err)
		waits, ends, gone := resume(""), resume("&timeoutSeconds=100"), resume("")
		gone.close()
		time.Sleep(2 * time.Minute)
		require.False(t, waits.ended())
		require.Empty(t, waits.texts())
		require.True(t, ends.ended())
		require.False(t, ends.cut)
		require.Empty(t, ends.texts())
		_, waiting := w.server.replays.Taken()
		require.Equal(t, 1, waiting)
		all.Leave()
		synctest.Wait()
		require.Equal(t, want, waits.texts()[:2])

		all, err = w.server.replays.Take(t.Context(), seats.Client{User: "other"}, replaySeats, false, nil)
		require.NoError(t, err)
		withdrawn := resume("")
		time.Sleep(access.RecheckInterval)
		forbidden.Store(true)
		all.Leave()
		synctest.Wait()
		require.True(t, withdrawn.ended())
		require.Empty(t, strings.Join(withdrawn.texts(), " "))
		require.Zero(t, taken(w.server.replays))
	})
}
