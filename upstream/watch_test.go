package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/object"
)

func event(typ, obj string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`, typ, obj) + "\n" }

const smallPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"7","managedFields":[{}]}}`

// show formats an event for comparison.
func show(typ watch.EventType, obj runtime.Object) string {
	switch o := obj.(type) {
	case *object.Object:
		return fmt.Sprintf("%s %s %s@%s", typ, o.Kind(), o.Key(), o.GetResourceVersion())
	case *metav1.Status:
		return fmt.Sprintf("%s Status %d %s", typ, o.Code, o.Reason)
	case *InvalidObject:
		return fmt.Sprintf("%s InvalidObject: %v", typ, o.Err)
	}
	return fmt.Sprintf("%s %T", typ, obj)
}

// reading returns a reader of a stream of JSON.
func reading(r io.Reader, prune object.Prune) *eventReader {
	return &eventReader{frames: newLines(r), dec: decoding{pods, prune}}
}

// decode reads a stream of JSON to its end.
func decode(r io.Reader) (events []string, err error) {
	return drain(reading(r, object.NewPrune(object.ManagedFields)))
}

// drain reads a stream to its end.
func drain(r *eventReader) (events []string, err error) {
	for {
		e, err := r.next()
		if err != nil {
			return events, err
		}
		events = append(events, show(e.Type, e.Object))
	}
}

// requireStream checks that a stream has the events want, and ends with an error that contains
// wantErr or, if that is empty, normally.
func requireStream(t *testing.T, read func(io.Reader) ([]string, error), r io.Reader, want []string, wantErr, how string) {
	t.Helper()
	got, err := read(r)
	require.Equal(t, want, got, how)
	if wantErr == "" {
		require.Equal(t, io.EOF, err, how)
	} else {
		require.ErrorContains(t, err, wantErr, how)
	}
}

func TestWatchFrames(t *testing.T) {
	long := strings.Replace(smallPod, `"name":"a"`, `"name":"long","annotations":{"x":"`+strings.Repeat("y", 200_000)+`"}`, 1)
	for _, tc := range []struct {
		name   string
		stream string
		want   []string
		err    string // if the end is not io.EOF
	}{
		{"nothing", "", nil, ""},
		{
			"all types",
			event("ADDED", smallPod) + event("MODIFIED", smallPod) + event("DELETED", smallPod) +
				event("BOOKMARK", `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","creationTimestamp":null},"spec":{"containers":null}}`) +
				event("ERROR", statusBody(410, "Expired", "too old resource version: 1 (5)", "")),
			[]string{"ADDED Pod n/a@7", "MODIFIED Pod n/a@7", "DELETED Pod n/a@7", "BOOKMARK Pod @9", "ERROR Status 410 Expired"}, "",
		},
		{"long frame", event("ADDED", smallPod) + event("ADDED", long) + event("ADDED", smallPod), []string{"ADDED Pod n/a@7", "ADDED Pod n/long@7", "ADDED Pod n/a@7"}, ""},
		{"empty lines, CRLF", "\n\r\n" + strings.ReplaceAll(event("ADDED", smallPod), "\n", "\r\n") + "\n", []string{"ADDED Pod n/a@7"}, ""},
		{"no last line feed", strings.TrimSpace(event("ADDED", smallPod)), []string{"ADDED Pod n/a@7"}, ""},
		{"other order", `{"object":` + smallPod + `,"type":"ADDED"}` + "\n", []string{"ADDED Pod n/a@7"}, ""},
		{"spaces", `{ "type" : "ADDED", "object" : ` + smallPod + " }\n", []string{"ADDED Pod n/a@7"}, ""},
		{"more members", `{"type":"ADDED","object":` + smallPod + `,"x":{}}` + "\n", []string{"ADDED Pod n/a@7"}, ""},
		{"status when added", event("ADDED", statusBody(500, "X", "y", "")), []string{"ADDED Status 500 X"}, ""},
		{"error, no status", event("ERROR", smallPod), []string{"ERROR InvalidObject: ERROR event without a Status"}, ""},
		{"no metadata", event("ADDED", `{"kind":"Pod","apiVersion":"v1"}`) + event("ADDED", smallPod), []string{"ADDED InvalidObject: object has no metadata.name", "ADDED Pod n/a@7"}, ""},
		{"not an object", event("ADDED", `[1]`) + event("ADDED", `null`) + event("ADDED", smallPod), []string{"ADDED InvalidObject: not a valid JSON object", "ADDED InvalidObject: not a valid JSON object", "ADDED Pod n/a@7"}, ""},
		{"bookmark of no RV", event("BOOKMARK", `{"kind":"Pod","apiVersion":"v1","metadata":{}}`) + event("ADDED", smallPod), []string{"BOOKMARK InvalidObject: bookmark without a resourceVersion: object has no metadata.name", "ADDED Pod n/a@7"}, ""},
		{"bookmark of null", event("BOOKMARK", `null`) + event("ADDED", smallPod), []string{"BOOKMARK InvalidObject: not a valid JSON object", "ADDED Pod n/a@7"}, ""},
		{"another type", event("ADDED", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"x"}}`) + event("ADDED", smallPod), []string{"ADDED InvalidObject: object of another type: v1 Node x, not v1 Pod", "ADDED Pod n/a@7"}, ""},
		{"type left out", event("ADDED", `{"metadata":{"name":"x"}}`), []string{"ADDED Pod x@"}, ""},
		{"no object", `{"type":"ADDED"}` + "\n", nil, "not a watch event"},
		{"unknown type", event("RENAMED", smallPod), nil, "not a watch event"},
		{"no JSON", "upstream connect error\n", nil, "not a watch event"},
		{"cut in good order", event("ADDED", smallPod) + event("ADDED", smallPod)[:80], []string{"ADDED Pod n/a@7"}, "not a watch event"},
		{"deeper than stacks", event("ADDED", strings.Repeat("[", 5<<20)+strings.Repeat("]", 5<<20)), nil, "not a watch event"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, c := range []struct {
				name string
				r    io.Reader
			}{
				{"whole", strings.NewReader(tc.stream)},
				{"bytewise", iotest.OneByteReader(strings.NewReader(tc.stream))},
				{"EOF", iotest.DataErrReader(strings.NewReader(tc.stream))},
			} {
				if c.name == "bytewise" && len(tc.stream) > 1<<20 {
					continue // slow, and no further case
				}
				requireStream(t, decode, c.r, tc.want, tc.err, c.name)
			}
		})
	}
}

// Frames of every length around the decoder's buffer sizes arrive complete.
func TestWatchFrameLengths(t *testing.T) {
	var stream strings.Builder
	var want []string
	frame := event("ADDED", smallPod)
	for _, size := range []int{1024, 2048, frameBuffer, 2 * frameBuffer} {
		for d := -3; d <= 3; d++ {
			pad := size + d - len(frame) - len(`,"x":""`) + 1
			obj := strings.TrimSuffix(smallPod, "}") + `,"x":"` + strings.Repeat("z", pad) + `"}`
			stream.WriteString(event("ADDED", obj))
			want = append(want, "ADDED Pod n/a@7")
		}
	}
	got, err := decode(strings.NewReader(stream.String()))
	require.Equal(t, io.EOF, err)
	require.Equal(t, want, got)
}

func TestWatchFrameTooLarge(t *testing.T) {
	huge := func(size int) string {
		return event("MODIFIED", strings.TrimSuffix(smallPod, "}")+`,"x":"`+strings.Repeat("z", size)+`"}`)
	}
	for _, size := range []int{maxObject, 2*maxObject + 12345} {
		got, err := decode(strings.NewReader(event("ADDED", smallPod) + huge(size) + event("DELETED", smallPod)))
		require.Equal(t, io.EOF, err)
		require.Equal(t, []string{"ADDED Pod n/a@7", "MODIFIED InvalidObject: " + ErrTooLarge.Error(), "DELETED Pod n/a@7"}, got,
			"the watch continues after it")
	}
	// At the limit, one byte more or less decides.
	over := len(huge(0)) - 1
	got, err := decode(strings.NewReader(huge(maxObject-over-1) + huge(maxObject-over)))
	require.Equal(t, io.EOF, err)
	require.Equal(t, []string{"MODIFIED Pod n/a@7", "MODIFIED InvalidObject: " + ErrTooLarge.Error()}, got)
	// The connection may break inside such a frame.
	got, err = decode(io.MultiReader(strings.NewReader(huge(2 * maxObject)[:maxObject+99]), iotest.ErrReader(syscall.ECONNRESET)))
	require.Equal(t, io.EOF, err)
	require.Equal(t, []string{"MODIFIED InvalidObject: " + ErrTooLarge.Error(), "ERROR Status 0 ConnectionLost"}, got)
}

// A connection that breaks at any byte ends in an ERROR event, unlike a stream that was closed
// normally.
func TestWatchConnectionLost(t *testing.T) {
	first := event("ADDED", smallPod)
	second := event("ADDED", strings.TrimSuffix(smallPod, "}")+`,"x":"`+strings.Repeat("z", 3*frameBuffer)+`"}`)
	for _, lost := range []error{io.ErrUnexpectedEOF, syscall.ECONNRESET, errors.New("http2: client connection lost"), context.DeadlineExceeded} {
		for _, cut := range []int{0, 1, 100, 1024, frameBuffer, frameBuffer + 1, 2 * frameBuffer, len(second) - 1} {
			for _, oneByte := range []bool{false, true} {
				var r io.Reader = strings.NewReader(first + second[:cut])
				if oneByte {
					r = iotest.OneByteReader(r)
				}
				got, err := decode(io.MultiReader(r, iotest.ErrReader(lost)))
				require.Equal(t, io.EOF, err)
				require.Equal(t, []string{"ADDED Pod n/a@7", "ERROR Status 0 ConnectionLost"}, got, "%v after %d", lost, cut)
			}
		}
	}
	got, err := decode(io.MultiReader(strings.NewReader(first), iotest.ErrReader(context.Canceled)))
	require.Equal(t, io.EOF, err)
	require.Equal(t, []string{"ADDED Pod n/a@7"}, got, "the caller's own cancellation causes no event")
}

// The frame's buffer is reused, so objects must be copies.
func TestWatchObjectsAreCopies(t *testing.T) {
	var stream strings.Builder
	for i := range 20 {
		stream.WriteString(event("ADDED", bigPod(i, true)))
	}
	for _, p := range prunes {
		d := reading(strings.NewReader(stream.String()), p.prune)
		var got []*object.Object
		for range 20 {
			e, err := d.next()
			require.NoError(t, err)
			got = append(got, e.Object.(*object.Object))
		}
		for i, o := range got {
			require.Equal(t, fmt.Sprintf("shop-%d/till-%d", i%10, i), o.Key())
			if p.name == "all" {
				require.Equal(t, bigPod(i, true), string(o.Raw()))
			}
			require.LessOrEqual(t, cap(o.Raw()), len(o.Raw())+len(o.Raw())/4)
		}
	}
}

func TestWatchInvalidObject(t *testing.T) {
	d := reading(strings.NewReader(event("ADDED", `{"kind":"Pod","x":"`+strings.Repeat("y", 5000)+`"}`)), object.Prune{})
	e, err := d.next()
	require.NoError(t, err)
	u := e.Object.(*InvalidObject)
	require.ErrorIs(t, u.Err, object.ErrNoMetadata)
	require.Same(t, u, u.DeepCopyObject())
	require.True(t, u.GetObjectKind().GroupVersionKind().Empty())
}

// stream answers a watch with frames, then calls end.
func stream(end func(w http.ResponseWriter, r *http.Request), frames ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, f := range frames {
			_, _ = io.WriteString(w, f)
		}
		w.(http.Flusher).Flush()
		end(w, r)
	}
}

func inGoodOrder(http.ResponseWriter, *http.Request) {}
func abort(http.ResponseWriter, *http.Request)       { panic(http.ErrAbortHandler) }
func stay(_ http.ResponseWriter, r *http.Request)    { <-r.Context().Done() }

func collect(w watch.Interface) (events []string) {
	for ev := range w.ResultChan() {
		events = append(events, show(ev.Type, ev.Object))
	}
	return events
}

func TestWatch(t *testing.T) {
	frames := []string{event("ADDED", smallPod), event("BOOKMARK", `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"}}`)}
	for _, tc := range []struct {
		name string
		end  func(http.ResponseWriter, *http.Request)
		want []string
	}{
		{"server closes", inGoodOrder, []string{"ADDED Pod n/a@7", "BOOKMARK Pod @9"}},
		{"connection breaks", abort, []string{"ADDED Pod n/a@7", "BOOKMARK Pod @9", "ERROR Status 0 ConnectionLost"}},
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x\n") },
			[]string{"ADDED Pod n/a@7", "BOOKMARK Pod @9", "ERROR Status 500 InternalError"}},
	} {
		for _, p := range protocols {
			t.Run(tc.name+" "+p.name, func(t *testing.T) {
				s := podSource(p.serve(t, stream(tc.end, frames...)))
				w, err := s.Watch(context.Background(), "5", time.Minute)
				require.NoError(t, err)
				defer w.Stop()
				require.Equal(t, tc.want, collect(w))
				require.GreaterOrEqual(t, s.BytesReceived(), int64(len(strings.Join(frames, ""))))
			})
		}
	}
}

func TestWatchRequest(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.String()
		require.Equal(t, "zstd, gzip", r.Header.Get("Accept-Encoding"))
		require.Equal(t, "application/json", r.Header.Get("Accept"))
		reply(w, 200, "")
	})
	s := c.Source(SourceOptions{Resource: tills, Namespace: "shop", LabelSelector: "a=b"})
	for _, tc := range []struct{ rv, want string }{
		{"5", "/apis/shop.example.com/v1/namespaces/shop/tills?allowWatchBookmarks=true&labelSelector=a%3Db&resourceVersion=5&timeoutSeconds=300&watch=true"},
		{"", "/apis/shop.example.com/v1/namespaces/shop/tills?allowWatchBookmarks=true&labelSelector=a%3Db&timeoutSeconds=300&watch=true"},
	} {
		w, err := s.Watch(context.Background(), tc.rv, 5*time.Minute)
		require.NoError(t, err)
		require.Empty(t, collect(w))
		w.Stop()
		require.Equal(t, tc.want, got)
	}
}

func TestWatchEndsWithCaller(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			c := p.serve(t, stream(stay, event("ADDED", smallPod)))
			// By Stop, with an event that is not received.
			w, err := podSource(c).Watch(context.Background(), "5", time.Minute)
			require.NoError(t, err)
			w.Stop()
			w.Stop()
			_, open := <-w.ResultChan()
			require.False(t, open)
			// By the context.
			ctx, cancel := context.WithCancel(context.Background())
			w, err = podSource(c).Watch(ctx, "5", time.Minute)
			require.NoError(t, err)
			defer w.Stop()
			require.Equal(t, watch.Added, (<-w.ResultChan()).Type)
			cancel()
			require.Empty(t, collect(w), "the caller's own cancellation causes no event")
		})
	}
}

func TestWatchRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		h    http.HandlerFunc
		kind ErrorClass
	}{
		{"410", func(w http.ResponseWriter, _ *http.Request) { reply(w, 410, statusBody(410, "Expired", "old", "")) }, Expired},
		{"403", func(w http.ResponseWriter, _ *http.Request) { reply(w, 403, statusBody(403, "Forbidden", "no", "")) }, Forbidden},
		{"404", func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, Gone},
		{"429", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			reply(w, 429, "busy")
		}, Throttled},
		{"503", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "3600"); reply(w, 503, "") }, Server},
		{"HTML", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>")
		}, Other},
		{"EOF", abort, Unreachable},
	} {
		for _, p := range protocols {
			t.Run(tc.name+" "+p.name, func(t *testing.T) {
				var requests atomic.Int32
				c := p.serve(t, func(w http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					tc.h(w, r)
				})
				w, err := podSource(c).Watch(context.Background(), "5", time.Minute)
				require.Nil(t, w)
				require.Error(t, err)
				require.Equal(t, tc.kind, Classify(err), "%v", err)
				require.EqualValues(t, 1, requests.Load(), "no request is made twice")
			})
		}
	}
}

// If a proxy compressed an error answer, its reason is still found.
func TestPackedStatus(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(410)
		_, _ = w.Write(pack(statusBody(410, "Expired", "old", "")))
	})
	_, err := podSource(c).List(context.Background(), ListOptions{}, nil)
	require.True(t, apierrors.IsResourceExpired(err), "%v", err)
}

func FuzzWatch(f *testing.F) {
	f.Add([]byte(event("ADDED", smallPod)))
	f.Add([]byte(`{"object":` + smallPod + `,"type":"ADDED"}` + "\n\n"))
	f.Add([]byte(event("BOOKMARK", `{}`) + event("ERROR", statusBody(410, "Expired", "", ""))))
	f.Fuzz(func(t *testing.T, in []byte) {
		d := reading(strings.NewReader(string(in)), object.NewPrune(object.ManagedFields))
		for {
			e, err := d.next()
			if err != nil {
				return
			}
			if o, ok := e.Object.(*object.Object); ok && !validJSON(o.Raw()) {
				t.Fatalf("bad JSON of %q: %q", in, o.Raw())
			}
		}
	})
}
