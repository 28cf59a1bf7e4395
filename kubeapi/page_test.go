package kubeapi

import (
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// pages reads a list page by page, and calls between before each but the first.
func pages(t require.TestingT, w *world, query string, limit int, between func()) (all []string, rv string) {
	token := ""
	for {
		u := "/api/v1/pods?limit=" + strconv.Itoa(limit) + "&continue=" + url.QueryEscape(token)
		if query != "" {
			u += "&" + query
		}
		l := ask(t, w.server, u)
		require.Equal(t, http.StatusOK, l.Code, l.raw)
		if rv == "" {
			rv = l.Metadata.ResourceVersion
		}
		require.Equal(t, rv, l.Metadata.ResourceVersion, "all pages are of one state")
		all = append(all, l.names()...)
		if token = l.Metadata.Continue; token == "" {
			require.Nil(t, l.Metadata.RemainingItemCount)
			return all, rv
		}
		require.Len(t, l.Items, limit)
		if query == "" {
			left := len(w.stateAt(number(t, rv))) - len(all)
			require.EqualValues(t, left, *l.Metadata.RemainingItemCount)
		}
		between()
	}
}

// TestPages reads lists page by page while the collection changes: they are the state at the first
// page's resourceVersion, as is an exact list of it.
func TestPages(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for i := range 30 {
			w.change([]string{"a", "a-b", "b"}[i%3]+"/"+strconv.Itoa(i), []string{"web", "db"}[i%2], "n1")
		}
		n := 0
		between := func() {
			for range 5 {
				n++
				switch key := slices.Sorted(keysOf(w.objects))[n*7%len(w.objects)]; n % 3 {
				case 0:
					w.remove(key)
				case 1:
					w.change(key, []string{"db", "web"}[n%2], "")
				case 2:
					w.change("a/new"+strconv.Itoa(n), "web", "")
				}
			}
		}
		for _, s := range []selection{selections[0], selections[2], selections[3]} {
			for _, limit := range []int{1, 3, 7, 100} {
				got, rv := pages(t, w, s.query, limit, between)
				require.True(t, slices.IsSorted(keysOnly(got)))
				want := w.stateAt(number(t, rv))
				for key, p := range want {
					if s.match(p) {
						require.Contains(t, got, key+"@"+strconv.Itoa(p.rv))
					}
				}
				require.Len(t, got, len(s.of(want)))
				l := ask(t, w.server, s.path+"?resourceVersionMatch=Exact&resourceVersion="+rv+"&"+s.query)
				require.Equal(t, got, l.names())
				require.Equal(t, rv, l.Metadata.ResourceVersion)
			}
		}
	})
}

func keysOf(s state) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range s {
			if !yield(key) {
				return
			}
		}
	}
}

func keysOnly(names []string) (keys []string) {
	for _, n := range names {
		key, _, _ := cut(n)
		keys = append(keys, key)
	}
	return keys
}

func cut(name string) (key, rv string, ok bool) {
	for i := range name {
		if name[i] == '@' {
			return name[:i], name[i+1:], true
		}
	}
	return name, "", false
}

// Once the events are gone a token has expired, and the answer has one that goes on in the newest
// state.
func TestPagesExpired(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		first := ask(t, w.server, "/api/v1/pods?limit=1")
		require.Equal(t, []string{"a/x@11"}, first.names())
		w.events.Skip(w.coll.State().RV)
		time.Sleep(24 * time.Hour)
		l := ask(t, w.server, "/api/v1/pods?limit=1&continue="+first.Metadata.Continue)
		require.Equal(t, []string{"b/x@12"}, l.names(), "nothing has changed")
		w.change("b/y", "web", "")
		w.events.Skip(w.coll.State().RV)
		l = ask(t, w.server, "/api/v1/pods?limit=1&continue="+first.Metadata.Continue)
		require.Equal(t, http.StatusGone, l.Code)
		require.Equal(t, "Expired", l.Reason)
		l = ask(t, w.server, "/api/v1/pods?limit=1&continue="+l.Metadata.Continue)
		require.Equal(t, []string{"b/x@12"}, l.names())
		require.Equal(t, "13", l.Metadata.ResourceVersion)
		l = ask(t, w.server, "/api/v1/pods?resourceVersion=12&resourceVersionMatch=Exact")
		require.Equal(t, http.StatusGone, l.Code)
		require.Contains(t, l.raw, `"causes":[{"reason":"HistorySince","message":"`, "a watch can continue there")
		l = ask(t, w.server, "/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact")
		require.Equal(t, http.StatusGone, l.Code)
		require.NotContains(t, l.raw, "HistorySince")
	})
}

// TestResourceVersions pins which state each resourceVersion is answered with.
func TestResourceVersions(t *testing.T) {
	const list, one = "/api/v1/pods?", "/api/v1/namespaces/a/pods/x?"
	tests := []struct {
		name, url string
		code      int
		rv        string // of the list
	}{
		{"get unset", one, 200, ""},
		{"get 0", one + "resourceVersion=0", 200, ""},
		{"get older", one + "resourceVersion=11", 200, ""},
		{"get newer", one + "resourceVersion=1000", 504, ""},
		{"get invalid", one + "resourceVersion=x", 500, ""},
		{"unset", list, 200, "13"},
		{"0", list + "resourceVersion=0", 200, "13"},
		{"older", list + "resourceVersion=12", 200, "13"},
		{"newer", list + "resourceVersion=1000", 504, ""},
		{"invalid", list + "resourceVersion=x", 400, ""},
		{"0, limit", list + "resourceVersion=0&limit=1", 200, "13"},
		{"older, limit", list + "resourceVersion=12&limit=1", 200, "12"},
		{"newer, limit", list + "resourceVersion=1000&limit=1", 504, ""},
		{"gone, limit", list + "resourceVersion=5&limit=1", 410, ""},
		{"unset, not older", list + "resourceVersionMatch=NotOlderThan", 422, ""},
		{"0, not older", list + "resourceVersion=0&resourceVersionMatch=NotOlderThan", 200, "13"},
		{"older, not older", list + "resourceVersion=12&resourceVersionMatch=NotOlderThan", 200, "13"},
		{"newer, not older", list + "resourceVersion=1000&resourceVersionMatch=NotOlderThan", 504, ""},
		{"unset, exact", list + "resourceVersionMatch=Exact", 422, ""},
		{"0, exact", list + "resourceVersion=0&resourceVersionMatch=Exact", 422, ""},
		{"older, exact", list + "resourceVersion=12&resourceVersionMatch=Exact", 200, "12"},
		{"the newest, exact", list + "resourceVersion=13&resourceVersionMatch=Exact", 200, "13"},
		{"gone, exact", list + "resourceVersion=5&resourceVersionMatch=Exact", 410, ""},
		{"newer, exact", list + "resourceVersion=1000&resourceVersionMatch=Exact", 504, ""},
	}
	inBubble(t, func(t *testing.T, w *world) {
		w.change("a/y", "web", "")
		for _, test := range tests {
			began := time.Now()
			l := ask(t, w.server, test.url)
			require.Equal(t, test.code, l.Code, "%s: %s", test.name, l.raw)
			if l.Code == 504 {
				require.Equal(t, waitLimit, time.Since(began), test.name)
				require.Equal(t, "1", l.header.Get("Retry-After"), test.name)
			}
			if test.rv != "" {
				require.Equal(t, test.rv, l.Metadata.ResourceVersion, test.name)
			}
			if test.name == "0, limit" {
				require.Len(t, l.Items, 3, "a limit is ignored")
			}
		}
		w.offline, w.since = true, time.Now()
		l := ask(t, w.server, list+"resourceVersion=1000")
		require.Equal(t, http.StatusTooManyRequests, l.Code)
		require.Equal(t, "1", l.header.Get("Retry-After"))
	})
}

// A record that can't be read makes the list an error.
func TestCorruptRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t, t.TempDir())
		w.stop(false)
		require.Equal(t, "cache.db", filepath.Base(w.path))
		damage(t, w.path, "b/x")
		w.start()
		require.Equal(t, http.StatusInternalServerError, ask(t, w.server, "/api/v1/pods?limit=10").Code)
		require.Equal(t, http.StatusInternalServerError, ask(t, w.server, "/api/v1/namespaces/b/pods/x").Code)
		require.Equal(t, http.StatusOK, ask(t, w.server, "/api/v1/namespaces/a/pods/x").Code)
		for _, u := range []string{"/api/v1/pods?labelSelector=app", "/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/pods?watch=1&labelSelector=app"} {
			s := watch(t, w.server, false, u)
			<-s.done
			require.True(t, s.cut || s.code == http.StatusInternalServerError, u)
		}
		s := open(t, w, "resourceVersion=12&allowWatchBookmarks=true")
		w.remove("b/x")
		require.Equal(t, []string{"ERROR 410"}, s.texts(), "the history does not have it either")
		s = open(t, w, "resourceVersion=13")
		w.change("a/x", "web", "n5")
		require.Equal(t, []string{"MODIFIED a/x@14"}, s.texts())
	})
}

// damage flips a bit of a stored record.
func damage(t require.TestingT, path, key string) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("c")).Bucket([]byte("pods"))
		return c.ForEachBucket(func(gen []byte) error {
			objects := c.Bucket(gen).Bucket([]byte("objects"))
			record := slices.Clone(objects.Get([]byte(key)))
			if len(record) == 0 {
				return nil
			}
			record[len(record)-1] ^= 1
			return objects.Put([]byte(key), record)
		})
	}))
	require.NoError(t, db.Close())
}
