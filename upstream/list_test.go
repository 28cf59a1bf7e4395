package upstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/object"
)

func pack(body string) []byte {
	var b bytes.Buffer
	zw, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = zw.Write([]byte(body))
	_ = zw.Close()
	return b.Bytes()
}

// gzipped answers with body, compressed if the client accepts that.
func gzipped(body string) http.HandlerFunc {
	packed := pack(body)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			_, _ = w.Write([]byte(body))
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed)
	}
}

// readList reads a body as List does, without a server.
func readList(res Resource, prune object.Prune, body io.Reader) (p page, got []*object.Object, skipped []error, err error) {
	l := &lister{
		s: &Source{
			opts: SourceOptions{Resource: res},
			dec:  decoding{res, prune},
		},
		opts: ListOptions{Progress: func(_, _ int64) {}, Invalid: func(_ string, err error) { skipped = append(skipped, err) }},
		each: func(o *object.Object) error {
			got = append(got, o)
			return nil
		},
	}
	p, err = l.read(body, "", func(string) {})
	return p, got, skipped, err
}

const (
	metaFirst = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12","remainingItemCount":3,"continue":"c"},` +
		`"items":[{"metadata":{"name":"a","namespace":"n","managedFields":[{}]}},{"metadata":{"name":"b","namespace":"n"},"spec":{"items":[{"items":[]}],"metadata":{"resourceVersion":"99"}}}]}`
	metaLast = `{"apiVersion":"shop.example.com/v1","items":[` +
		`{"apiVersion":"shop.example.com/v1","kind":"Till","metadata":{"name":"a","namespace":"n"}},` +
		`{"apiVersion":"shop.example.com/v1","kind":"Till","metadata":{"name":"b","namespace":"n"}}],` +
		`"kind":"TillList","metadata":{"continue":"","resourceVersion":"12"}}`
)

func TestListBody(t *testing.T) {
	for _, tc := range []struct {
		name string
		res  Resource
		body string
		want []string // of keys
		skip int
		err  string // in ErrBadList's text; empty for success
	}{
		{"metadata first", pods, metaFirst, []string{"n/a", "n/b"}, 0, ""},
		{"metadata last", tills, metaLast, []string{"n/a", "n/b"}, 0, ""},
		{"spaces", pods, "\n" + strings.ReplaceAll(metaFirst, `,"`, ` , "`) + "\n\n", []string{"n/a", "n/b"}, 0, ""},
		{"no items", pods, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`, nil, 0, ""},
		{"null items", pods, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":null}`, nil, 0, ""},
		{"unknown members", pods, `{"x":{"items":[1]},"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[],"y":[[]]}`, nil, 0, ""},
		{"list kind of a CRD", tills, strings.Replace(metaLast, "TillList", "TillCollection", 1), []string{"n/a", "n/b"}, 0, ""},
		{"item without metadata", pods, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{},{"metadata":{"name":"a"}}]}`, []string{"a"}, 1, ""},
		{"items that are no objects", pods, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[1,null,"x",[],{"metadata":{"name":"a"}}]}`, []string{"a"}, 4, ""},
		{"item of another type", pods, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"}}]}`, nil, 1, ""},
		{"item of another version", tills, strings.Replace(metaLast, `[{"apiVersion":"shop.example.com/v1"`, `[{"apiVersion":"shop.example.com/v2"`, 1), []string{"n/b"}, 1, ""},

		{"empty body", pods, ``, nil, 0, "unexpected EOF"},
		{"HTML", pods, `<html><body>log in</body></html>`, nil, 0, "invalid character '<'"},
		{"text", pods, `"x"`, nil, 0, "JSON string"},
		{"array", pods, `[]`, nil, 0, "JSON ["},
		{"status", pods, statusBody(500, "InternalError", "etcd is away", ""), nil, 0, "etcd is away"},
		{"one object", pods, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"}}`, nil, 0, "no items"},
		{"no member of items", pods, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"}}`, nil, 0, "no items"},
		{"items are an object", pods, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":{}}`, nil, 0, "items are a JSON {"},
		{"items twice", pods, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[],"items":[]}`, nil, 0, "twice"},
		{"no kind", pods, `{"metadata":{"resourceVersion":"1"},"items":[]}`, nil, 0, "not a v1 PodList"},
		{"kind of another", pods, strings.Replace(metaFirst, "PodList", "SecretList", 1), []string{"n/a", "n/b"}, 0, "a v1 SecretList, not a v1 PodList"},
		{"kind is a number", pods, strings.Replace(metaFirst, `"PodList"`, "7", 1), []string{"n/a", "n/b"}, 0, "not a v1 PodList"},
		{"table", pods, strings.Replace(metaFirst, "PodList", "Table", 1), []string{"n/a", "n/b"}, 0, "Table"},
		{"another version", tills, strings.Replace(metaLast, `{"apiVersion":"shop.example.com/v1","items"`, `{"apiVersion":"shop.example.com/v2","items"`, 1), []string{"n/a", "n/b"}, 0, "example.com/v2"},
		{"other list of no type", tills, `{"apiVersion":"shop.example.com/v1","kind":"X","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}]}`, []string{"a"}, 0, "not a"},
		{"no resourceVersion", pods, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`, nil, 0, `resourceVersion is ""`},
		{"no metadata", pods, `{"kind":"PodList","apiVersion":"v1","items":[]}`, nil, 0, `resourceVersion is ""`},
		{"resourceVersion 0", pods, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"0"},"items":[]}`, nil, 0, `resourceVersion is "0"`},
		{"two lists", pods, metaFirst + metaFirst, []string{"n/a", "n/b"}, 0, "something after"},
		{"too deep", pods, `{"kind":"PodList","x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}", nil, 0, "depth"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, c := range []struct {
				name string
				r    io.Reader
			}{{"whole", strings.NewReader(tc.body)}, {"bytewise", iotest.OneByteReader(strings.NewReader(tc.body))}} {
				_, got, skipped, err := readList(tc.res, object.NewPrune(object.ManagedFields), c.r)
				if tc.err == "" {
					require.NoError(t, err, c.name)
				} else {
					require.ErrorIs(t, err, ErrBadList, c.name)
					require.ErrorContains(t, err, tc.err, c.name)
				}
				var keys []string
				for _, o := range got {
					keys = append(keys, o.Key())
					require.Equal(t, tc.res.Kind, o.Kind())
					require.Equal(t, tc.res.APIVersion(), o.APIVersion())
					require.NotContains(t, string(o.Raw()), "managedFields")
				}
				require.Equal(t, tc.want, keys, c.name)
				require.Len(t, skipped, tc.skip, c.name)
			}
		})
	}
}

func TestListMetadata(t *testing.T) {
	p, _, _, err := readList(pods, object.Prune{}, strings.NewReader(metaFirst))
	require.NoError(t, err)
	require.Equal(t, page{apiVersion: "v1", kind: "PodList", rv: "12", next: "c", remaining: 3}, p)
	p, _, _, err = readList(tills, object.Prune{}, strings.NewReader(metaLast))
	require.NoError(t, err)
	require.Zero(t, p.remaining, "the last page")
	p, _, _, err = readList(pods, object.Prune{}, strings.NewReader(strings.Replace(metaFirst, `"remainingItemCount":3,`, "", 1)))
	require.NoError(t, err)
	require.EqualValues(t, -1, p.remaining, "unknown")
}

// A list that is truncated at any byte is an error, compressed or not.
func TestListCutOff(t *testing.T) {
	for _, tc := range []struct {
		res  Resource
		body string
	}{{pods, metaFirst}, {tills, metaLast}} {
		for i := range len(tc.body) {
			_, _, _, err := readList(tc.res, object.Prune{}, strings.NewReader(tc.body[:i]))
			require.ErrorIs(t, err, ErrBadList, "%q", tc.body[:i])
		}
		packed := pack(tc.body)
		for i := range packed {
			zr := &unpackedBody{packed: io.NopCloser(bytes.NewReader(packed[:i])), open: newGzip}
			_, _, _, err := readList(tc.res, object.Prune{}, zr)
			require.ErrorIs(t, err, ErrBadList, "packed, %d bytes", i)
			require.Equal(t, Unreachable, Classify(err))
		}
	}
}

// The parser reuses its buffer, so objects must be copies.
func TestListObjectsAreCopies(t *testing.T) {
	body := bigList(50)
	for _, p := range prunes {
		for _, typed := range []bool{false, true} {
			in := body
			if typed {
				in = strings.ReplaceAll(in, `{"metadata":{"name"`, `{"kind":"Pod","apiVersion":"v1","metadata":{"name"`)
			}
			_, got, _, err := readList(pods, p.prune, strings.NewReader(in))
			require.NoError(t, err)
			require.Len(t, got, 50)
			for i, o := range got {
				want := bigPod(i, true)
				if p.name == "all" {
					require.JSONEq(t, want, string(o.Raw()))
				}
				require.Equal(t, fmt.Sprintf("shop-%d/till-%d", i%10, i), o.Key())
				require.Equal(t, strconv.Itoa(1000+i), o.GetResourceVersion())
				require.LessOrEqual(t, cap(o.Raw()), len(o.Raw())+len(o.Raw())/4, "an object keeps no more memory than it needs")
			}
		}
	}
}

// endless is a body whose item never ends.
type endless struct{ head *strings.Reader }

func (e *endless) Read(p []byte) (int, error) {
	if e.head.Len() > 0 {
		return e.head.Read(p)
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestListItemTooLarge(t *testing.T) {
	for _, head := range []string{
		`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"},"data":"`,
		`{"kind":"PodList","apiVersion":"v1","other":"`,
		`{"kind":"`,
		`{"metadata":{"resourceVersion":"`,
	} {
		_, _, _, err := readList(pods, object.Prune{}, &endless{strings.NewReader(head)})
		require.ErrorIs(t, err, ErrTooLarge)
		require.ErrorIs(t, err, ErrBadList)
	}
}

// The limit is per item, not for the list.
func TestListLimitIsPerItem(t *testing.T) {
	item := `{"metadata":{"name":"a"},"data":"` + strings.Repeat("x", 6<<20) + `"}`
	body := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` + item + strings.Repeat(","+item, 4) + "]}"
	_, got, _, err := readList(pods, object.Prune{}, strings.NewReader(body))
	require.NoError(t, err)
	require.Len(t, got, 5)
}

// paged serves n pods in pages. It passes each request to hook first.
func paged(t *testing.T, n int, hook func(w http.ResponseWriter, r *http.Request) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if hook != nil && hook(w, r) {
			return
		}
		q := r.URL.Query()
		limit, err := strconv.Atoi(q.Get("limit"))
		if err != nil {
			limit = n
		}
		from := 0
		if c := q.Get("continue"); c != "" {
			from, err = strconv.Atoi(c)
			if err != nil || q.Get("resourceVersion") != "" {
				t.Errorf("bad request %s", r.URL)
			}
		}
		to := min(n, from+limit)
		var items []string
		for i := from; i < to; i++ {
			items = append(items, bigPod(i, false))
		}
		meta := `"resourceVersion":"5000"`
		if to < n {
			meta += fmt.Sprintf(`,"continue":"%d","remainingItemCount":%d`, to, n-to)
		}
		gzipped(fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{%s},"items":[%s]}`, meta, strings.Join(items, ",")))(w, r)
	}
}

func TestListPages(t *testing.T) {
	type progress struct{ count, remaining int64 }
	var paths []string
	c := serve(t, paged(t, 7, func(_ http.ResponseWriter, r *http.Request) bool {
		paths = append(paths, r.URL.Path)
		return false
	}))
	for _, tc := range []struct {
		size     int64
		requests int
		want     []progress
	}{
		{3, 3, []progress{{3, 4}, {6, 1}, {7, 0}}},
		{7, 1, []progress{{7, 0}}},
		{0, 1, []progress{{7, 0}}},
	} {
		paths = nil
		var seen []progress
		var keys []string
		rv, err := podSource(c).List(context.Background(), ListOptions{
			PageSize: tc.size,
			Progress: func(count, remaining int64) { seen = append(seen, progress{count, remaining}) },
		}, func(o *object.Object) error {
			keys = append(keys, o.Key())
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "5000", rv)
		require.Len(t, keys, 7)
		require.Equal(t, tc.want, seen)
		require.Len(t, paths, tc.requests)
		require.Equal(t, "/api/v1/pods", paths[0])
	}
}

func TestListRequest(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts SourceOptions
		list ListOptions
		want string
	}{
		{"all", SourceOptions{Resource: pods}, ListOptions{}, "/api/v1/pods"},
		{"namespace", SourceOptions{Resource: tills, Namespace: "shop"}, ListOptions{PageSize: 500},
			"/apis/shop.example.com/v1/namespaces/shop/tills?limit=500"},
		{"selectors", SourceOptions{Resource: pods, LabelSelector: "a=b,c", FieldSelector: "spec.nodeName=x"}, ListOptions{},
			"/api/v1/pods?fieldSelector=spec.nodeName%3Dx&labelSelector=a%3Db%2Cc"},
	} {
		var got string
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got = r.URL.String()
			require.Equal(t, "zstd, gzip", r.Header.Get("Accept-Encoding"))
			require.Equal(t, "application/json", r.Header.Get("Accept"))
			reply(w, 200, fmt.Sprintf(`{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"1"},"items":[]}`, tc.opts.Resource.Kind, tc.opts.Resource.APIVersion()))
		})
		_, err := c.Source(tc.opts).List(context.Background(), tc.list, nil)
		require.NoError(t, err, tc.name)
		require.Equal(t, tc.want, got, tc.name)
	}
}

func TestListErrors(t *testing.T) {
	t.Parallel() // it waits half a minute until a connection that breaks again and again is given up
	second := func(code int, header http.Header, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("continue") == "" {
				return false
			}
			for k, v := range header {
				w.Header()[k] = v
			}
			reply(w, code, body)
			return true
		}
	}
	for _, tc := range []struct {
		name  string
		hook  func(http.ResponseWriter, *http.Request) bool
		check func(error) bool
		kind  ErrorClass
	}{
		{"410 between pages", second(410, nil, statusBody(410, "Expired", "the continue token is too old", "")), apierrors.IsResourceExpired, Expired},
		{"403 between pages", second(403, nil, statusBody(403, "Forbidden", "no", `{"kind":"pods"}`)), apierrors.IsForbidden, Forbidden},
		{"500 in HTML", second(500, nil, "<html>"), apierrors.IsInternalError, Server},
		{"same token", second(200, nil, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5000","continue":"3"},"items":[]}`),
			func(err error) bool { return errors.Is(err, ErrBadList) }, Other},
		{"429 on the first page", func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "3600")
			reply(w, 429, "busy")
			return true
		}, apierrors.IsTooManyRequests, Throttled},
		{"connection breaks", func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("continue") == "" {
				return false
			}
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(metaFirst[:200]))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }, Unreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, paged(t, 7, tc.hook))
			rv, err := podSource(c).List(context.Background(), ListOptions{PageSize: 3}, func(*object.Object) error { return nil })
			require.Error(t, err)
			require.Empty(t, rv)
			require.True(t, tc.check(err), "%v", err)
			require.Equal(t, tc.kind, Classify(err), "%v", err)
		})
	}
}

// If a busy server names the time to wait, a later page is retried.
func TestListWaitsBetweenPages(t *testing.T) {
	refused := 0
	c := serve(t, paged(t, 7, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") == "" || refused == 2 {
			return false
		}
		refused++
		w.Header().Set("Retry-After", "0")
		reply(w, 429, "busy")
		return true
	}))
	n := 0
	_, err := podSource(c).List(context.Background(), ListOptions{PageSize: 3}, func(*object.Object) error { n++; return nil })
	require.NoError(t, err)
	require.Equal(t, 7, n)
	require.Equal(t, 2, refused)
}

func TestListStopsWithCallback(t *testing.T) {
	stop := fmt.Errorf("disk: %w", io.EOF)
	c := serve(t, paged(t, 7, nil))
	n := 0
	_, err := podSource(c).List(context.Background(), ListOptions{}, func(*object.Object) error { n++; return stop })
	require.ErrorIs(t, err, stop)
	require.NotErrorIs(t, err, ErrBadList)
	require.Equal(t, 1, n)
}

func TestListProgressWithinPage(t *testing.T) {
	item := `{"metadata":{"name":"a"}}`
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`+item+strings.Repeat(","+item, 2499)+"]}")
	})
	var seen [][2]int64
	_, err := podSource(c).List(context.Background(), ListOptions{Progress: func(n, m int64) { seen = append(seen, [2]int64{n, m}) }},
		func(*object.Object) error { return nil })
	require.NoError(t, err)
	require.Equal(t, [][2]int64{{1000, -1}, {2000, -1}, {2500, 0}}, seen)
}

// A prune path that can't be applied is a mistake in the configuration. If every object were
// skipped for it, the collection would be empty.
func TestListBadPrune(t *testing.T) {
	bad := object.NewPrune("metadata.labels.*")
	_, _, skipped, err := readList(pods, bad, strings.NewReader(
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a","labels":{"x":"y"}}}]}`))
	require.Error(t, err)
	require.Empty(t, skipped)
}

func TestBytesReceived(t *testing.T) {
	body := bigList(20)
	c := serve(t, gzipped(body))
	s := podSource(c)
	_, err := s.List(context.Background(), ListOptions{}, func(*object.Object) error { return nil })
	require.NoError(t, err)
	require.EqualValues(t, len(pack(body)), s.BytesReceived(), "bytes are counted as received, compressed")
	require.Zero(t, podSource(c).BytesReceived(), "each source has its own counter")
}

func FuzzList(f *testing.F) {
	f.Add([]byte(metaFirst), uint16(50))
	f.Add([]byte(metaLast), uint16(200))
	f.Add([]byte(statusBody(500, "x", "y", "")), uint16(3))
	f.Add([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[null,{"metadata":[]}]}`), uint16(1))
	f.Fuzz(func(t *testing.T, body []byte, cut uint16) {
		for _, res := range []Resource{pods, tills} {
			_, got, _, err := readList(res, object.NewPrune(object.ManagedFields), bytes.NewReader(body))
			for _, o := range got {
				if o.GetName() == "" || o.Kind() != res.Kind {
					t.Fatalf("bad object from %q: %q", body, o.Raw())
				}
			}
			if err != nil {
				continue
			}
			whole := bytes.TrimRight(body, " \t\r\n")
			if _, _, _, err := readList(res, object.Prune{}, bytes.NewReader(whole[:int(cut)%len(whole)])); err == nil {
				t.Fatalf("%q cut to %d is a list", whole, int(cut)%len(whole))
			}
		}
	})
}

// After a quick page, the next one is requested as soon as its token is known, so that the server
// prepares it while this one arrives. When the list ends early, so does that request.
func TestListPrefetchesPages(t *testing.T) {
	for _, p := range protocols {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fails %v", p.name, fails), func(t *testing.T) {
				second := make(chan struct{})
				askedNext := sync.OnceFunc(func() { close(second) }) // a transport may repeat a GET
				c := p.serve(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					const head = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":%q},"items":[{"metadata":{"name":%q}}`
					switch r.URL.Query().Get("continue") {
					case "":
						_, _ = fmt.Fprintf(w, head+"]}", "1", "first")
					case "1":
						_, _ = fmt.Fprintf(w, head, "2", "a")
						w.(http.Flusher).Flush()
						<-second
						_, _ = io.WriteString(w, `,{"metadata":{"name":"b"}}]}`)
					case "2":
						askedNext()
						if fails {
							<-r.Context().Done()
							return
						}
						_, _ = fmt.Fprintf(w, head, "", "c")
						_, _ = io.WriteString(w, `]}`)
					}
				})
				var keys []string
				errStop := errors.New("stop")
				rv, err := podSource(c).List(context.Background(), ListOptions{}, func(o *object.Object) error {
					keys = append(keys, o.Key())
					if fails && o.Key() == "b" {
						return errStop
					}
					return nil
				})
				if fails {
					require.ErrorIs(t, err, errStop)
					return
				}
				require.NoError(t, err)
				require.Equal(t, "12", rv)
				require.Equal(t, []string{"first", "a", "b", "c"}, keys)
			})
		}
	}
}
