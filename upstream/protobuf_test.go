package upstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/snapcache/snapcache/object"
)

// packed returns obj as a kube-apiserver encodes it.
func packed(obj runtime.Object) []byte {
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		panic(err)
	}
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	if _, ok := obj.(*metav1.Status); ok {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func typedPod(name, rv string, size int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: "u-" + "1", ResourceVersion: rv, Labels: map[string]string{"app": "till"}},
		Spec:       corev1.PodSpec{NodeName: strings.Repeat("x", size)},
	}
}

func typedPods(n int) *corev1.PodList {
	left := int64(7)
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "12", Continue: "c", RemainingItemCount: &left}}
	for i := range n {
		list.Items = append(list.Items, *typedPod("p-"+string(rune('a'+i)), "9", i*10_000))
	}
	return list
}

func readProtobuf(body io.Reader) (page, []*object.Object, []error, error) {
	var got []*object.Object
	var skipped []error
	l := &lister{
		s:    &Source{opts: SourceOptions{Resource: pods}, dec: decoding{resource: pods}},
		opts: ListOptions{Progress: func(_, _ int64) {}, Invalid: func(_ string, err error) { skipped = append(skipped, err) }},
		each: func(o *object.Object) error {
			got = append(got, o)
			return nil
		},
	}
	p, err := l.read(body, runtime.ContentTypeProtobuf, func(string) {})
	return p, got, skipped, err
}

// The items of a list are, byte for byte, what the server sends of each object by itself.
func TestProtobufList(t *testing.T) {
	list := typedPods(12)
	body := packed(list)
	for _, tc := range []struct {
		name string
		r    io.Reader
	}{
		{"whole", bytes.NewReader(body)}, {"bytewise", iotest.OneByteReader(bytes.NewReader(body))}, {"EOF", iotest.DataErrReader(bytes.NewReader(body))},
	} {
		p, got, skipped, err := readProtobuf(tc.r)
		require.NoError(t, err, tc.name)
		require.Empty(t, skipped)
		require.Equal(t, page{apiVersion: "v1", kind: "PodList", rv: "12", next: "c", remaining: 7}, p)
		require.Len(t, got, 12)
		for i, o := range got {
			require.Equal(t, packed(&list.Items[i]), o.Raw())
			require.Equal(t, cap(o.Raw()), len(o.Raw()), "an object keeps no more memory than it needs")
			require.Equal(t, "n/"+list.Items[i].Name, o.Key())
			require.Equal(t, map[string]string{"app": "till"}, o.Labels())
			var pod corev1.Pod
			require.NoError(t, o.Into(&pod))
			require.Equal(t, list.Items[i], pod)
		}
	}
}

func TestProtobufListErrors(t *testing.T) {
	unnamed := typedPods(2)
	unnamed.Items[0].Name = ""
	for _, tc := range []struct {
		name string
		body []byte
		err  string
	}{
		{"nothing", nil, "unexpected EOF"},
		{"JSON", []byte(metaFirst), "does not begin"},
		{"another list", packed(&corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}), "not a v1 PodList"},
		{"a status", packed(&metav1.Status{Message: "no"}), "not a v1 PodList"},
		{"no resourceVersion", packed(&corev1.PodList{}), `its resourceVersion is ""`},
		{"more behind it", append(packed(typedPods(1)), 0xff), "unexpected EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, _, err := readProtobuf(bytes.NewReader(tc.body))
			require.ErrorIs(t, err, ErrBadList)
			require.ErrorContains(t, err, tc.err)
		})
	}
	_, got, skipped, err := readProtobuf(bytes.NewReader(packed(unnamed)))
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Len(t, skipped, 1)
	require.ErrorIs(t, skipped[0], object.ErrNoMetadata)
	empty := packed(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "12"}})
	p, got, _, err := readProtobuf(bytes.NewReader(empty))
	require.NoError(t, err)
	require.Empty(t, got)
	require.Zero(t, p.remaining)
}

// A list that ends early is never a complete one, wherever it ends.
func TestProtobufListCutOff(t *testing.T) {
	body := packed(typedPods(3))
	whole := len(body) - len("\x1a\x00\x22\x00") // without fields that are always empty
	step := 1
	if testing.Short() {
		step = 13
	}
	for i := 0; i < whole; i += step {
		_, _, _, err := readProtobuf(bytes.NewReader(body[:i]))
		require.ErrorIs(t, err, ErrBadList, "%d bytes", i)
		require.Equal(t, Unreachable, Classify(err), "%v", err)
		_, _, _, err = readProtobuf(io.MultiReader(bytes.NewReader(body[:i]), iotest.ErrReader(syscall.ECONNRESET)))
		require.ErrorIs(t, err, syscall.ECONNRESET, "%d bytes", i)
	}
}

// message returns the frame of a watch event.
func message(typ watch.EventType, raw []byte) string {
	e := metav1.WatchEvent{Type: string(typ), Object: runtime.RawExtension{Raw: raw}}
	b, err := e.Marshal()
	if err != nil {
		panic(err)
	}
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(b)))) + string(b)
}

func readMessages(r io.Reader) (events []string, err error) {
	return drain(&eventReader{frames: newMessages(r), dec: decoding{resource: pods}})
}

func TestProtobufWatch(t *testing.T) {
	small := packed(typedPod("a", "7", 0))
	huge := message(watch.Added, packed(typedPod("huge", "8", maxObject)))
	for _, tc := range []struct {
		name   string
		stream string
		want   []string
		err    string // if the end is not io.EOF
	}{
		{"nothing", "", nil, ""},
		{
			"all types",
			message("ADDED", small) + message("MODIFIED", packed(typedPod("b", "8", 100_000))) + message("DELETED", small) +
				message("BOOKMARK", packed(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}})) +
				message("ERROR", packed(&metav1.Status{Code: 410, Reason: "Expired"})),
			[]string{"ADDED Pod n/a@7", "MODIFIED Pod n/b@8", "DELETED Pod n/a@7", "BOOKMARK Pod @9", "ERROR Status 410 Expired"}, "",
		},
		{"too large", message("ADDED", small) + huge + message("DELETED", small), []string{"ADDED Pod n/a@7", "MODIFIED InvalidObject: " + ErrTooLarge.Error(), "DELETED Pod n/a@7"}, ""},
		{"status when added", message("ADDED", packed(&metav1.Status{Code: 500, Reason: "X"})), []string{"ADDED Status 500 X"}, ""},
		{"error, no status", message("ERROR", small), []string{"ERROR InvalidObject: ERROR event without a Status"}, ""},
		{"no name", message("ADDED", packed(&corev1.Pod{})) + message("ADDED", small), []string{"ADDED InvalidObject: object has no metadata.name", "ADDED Pod n/a@7"}, ""},
		{"no object", message("ADDED", nil) + message("ADDED", small), []string{"ADDED InvalidObject: not a valid JSON object", "ADDED Pod n/a@7"}, ""},
		{"JSON object", message("ADDED", []byte(smallPod)) + message("ADDED", small), []string{"ADDED Pod n/a@7", "ADDED Pod n/a@7"}, ""},
		{"not quite JSON", message("ADDED", []byte(smallPod+"}")) + message("ADDED", small), []string{"ADDED InvalidObject: not a valid JSON object", "ADDED Pod n/a@7"}, ""},
		{"damaged object", message("ADDED", small[:len(small)-20]) + message("ADDED", small), []string{"ADDED InvalidObject: not a valid JSON object: unexpected EOF", "ADDED Pod n/a@7"}, ""},
		{"bookmark of no RV", message("BOOKMARK", packed(&corev1.Pod{})), []string{"BOOKMARK InvalidObject: bookmark without a resourceVersion: object has no metadata.name"}, ""},
		{"another type", message("ADDED", packed(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}})), []string{"ADDED InvalidObject: object of another type: v1 Node x, not v1 Pod"}, ""},
		{"unknown type", message("RENAMED", small), nil, "not a watch event"},
		{"no message", "\x00\x00\x00\x02\xff\xff", nil, "not a watch event"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, c := range []struct {
				name string
				r    io.Reader
			}{
				{"whole", strings.NewReader(tc.stream)}, {"EOF", iotest.DataErrReader(strings.NewReader(tc.stream))},
			} {
				requireStream(t, readMessages, c.r, tc.want, tc.err, c.name)
			}
		})
	}
}

// A stream that ends within a frame is a connection that broke, wherever it ends.
func TestProtobufWatchConnectionLost(t *testing.T) {
	small := message(watch.Added, packed(typedPod("a", "7", 0)))
	for i := 1; i < len(small); i++ {
		for _, r := range []io.Reader{
			strings.NewReader(small + small[:i]), io.MultiReader(strings.NewReader(small+small[:i]), iotest.ErrReader(syscall.ECONNRESET)),
		} {
			got, err := readMessages(r)
			require.Equal(t, io.EOF, err)
			require.Equal(t, []string{"ADDED Pod n/a@7", "ERROR Status 0 ConnectionLost"}, got, "after %d bytes", i)
		}
	}
}

// protobufServer answers lists and watches with protobuf, as asked for.
func protobufServer(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "application/vnd.kubernetes.protobuf,application/json", r.Header.Get("Accept"))
		switch {
		case r.URL.Query().Get("labelSelector") == "old":
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			w.WriteHeader(http.StatusGone)
			_, _ = w.Write(packed(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "old"}))
		case r.URL.Query().Get("watch") != "":
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			_, _ = io.WriteString(w, message(watch.Added, packed(typedPod("a", "7", 0))))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			w.Header().Set("Content-Encoding", "gzip")
			list := typedPods(3)
			list.Continue = ""
			_, _ = w.Write(pack(string(packed(list))))
		}
	}
}

func TestProtobufSource(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			c := p.serve(t, protobufServer(t))
			s := c.Source(SourceOptions{Resource: pods, Protobuf: true})
			var keys []string
			rv, err := s.List(context.Background(), ListOptions{}, func(o *object.Object) error {
				require.True(t, o.Protobuf())
				keys = append(keys, o.Key())
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, "12", rv)
			require.Equal(t, []string{"n/p-a", "n/p-b", "n/p-c"}, keys)
			w, err := s.Watch(context.Background(), "5", time.Minute)
			require.NoError(t, err)
			require.Equal(t, "ADDED Pod n/a@7", func() string { e := <-w.ResultChan(); return show(e.Type, e.Object) }())
			w.Stop()
			bare, err := object.NewPrune("metadata.labels").For(&corev1.Pod{})
			require.NoError(t, err)
			pruned := c.Source(SourceOptions{Resource: pods, Protobuf: true, Prune: bare})
			_, err = pruned.List(context.Background(), ListOptions{}, func(o *object.Object) error {
				require.Empty(t, o.Labels())
				return nil
			})
			require.NoError(t, err)
			w, err = pruned.Watch(context.Background(), "5", time.Minute)
			require.NoError(t, err)
			require.Empty(t, (<-w.ResultChan()).Object.(*object.Object).Labels())
			w.Stop()
			old := c.Source(SourceOptions{Resource: pods, Protobuf: true, LabelSelector: "old"})
			_, err = old.List(context.Background(), ListOptions{}, nil)
			require.Equal(t, Expired, Classify(err), "%v", err)
			_, err = old.Watch(context.Background(), "5", time.Minute)
			require.Equal(t, Expired, Classify(err), "%v", err)
		})
	}
}

// A server without protobuf answers with JSON, which is stored instead.
func TestProtobufSourceOfJSON(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			stream(inGoodOrder, event("ADDED", smallPod))(w, r)
			return
		}
		reply(w, 200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[{"metadata":{"name":"a","namespace":"n"}}]}`)
	})
	s := c.Source(SourceOptions{Resource: pods, Protobuf: true})
	_, err := s.List(context.Background(), ListOptions{}, func(o *object.Object) error {
		require.False(t, o.Protobuf())
		return nil
	})
	require.NoError(t, err)
	w, err := s.Watch(context.Background(), "5", time.Minute)
	require.NoError(t, err)
	defer w.Stop()
	require.Equal(t, []string{"ADDED Pod n/a@7"}, collect(w))
}

// A server that does not accept a request for protobuf (406) is asked for JSON, from then on at once.
func TestProtobufNotAcceptable(t *testing.T) {
	var accepts []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		accepts = append(accepts, r.Header.Get("Accept"))
		if r.Header.Get("Accept") != "application/json" {
			reply(w, 406, statusBody(406, "NotAcceptable", "only JSON", ""))
			return
		}
		if r.URL.Query().Get("watch") != "" {
			stream(inGoodOrder, event("ADDED", smallPod))(w, r)
			return
		}
		reply(w, 200, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[{"metadata":{"name":"a","namespace":"n"}}]}`)
	})
	for _, first := range []string{"list", "watch"} {
		t.Run(first, func(t *testing.T) {
			accepts = nil
			s := c.Source(SourceOptions{Resource: pods, Protobuf: true})
			list := func() {
				_, err := s.List(context.Background(), ListOptions{}, func(*object.Object) error { return nil })
				require.NoError(t, err)
			}
			watches := func() {
				w, err := s.Watch(context.Background(), "5", time.Minute)
				require.NoError(t, err)
				defer w.Stop()
				require.Equal(t, []string{"ADDED Pod n/a@7"}, collect(w))
			}
			if first == "list" {
				list()
				watches()
			} else {
				watches()
				list()
			}
			require.Equal(t, []string{acceptProtobuf, "application/json", "application/json"}, accepts)
		})
	}
}

var protobufSeeds = sync.OnceValue(func() [][]byte {
	return [][]byte{packed(typedPods(2)), packed(&metav1.Status{Code: 410}), []byte(message(watch.Added, packed(typedPod("a", "7", 0))))}
})

// Input of any shape causes errors, not panics; what is delivered can be decoded or fails to.
func FuzzProtobuf(f *testing.F) {
	for _, seed := range protobufSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		usable := func(o *object.Object) {
			if o.GetName() == "" {
				t.Fatalf("an object without a name from %q", in)
			}
			_ = o.Into(&corev1.Pod{})
			_ = o.GetObjectMeta()
			_ = o.JSON()
		}
		_, got, _, _ := readProtobuf(bytes.NewReader(in))
		for _, o := range got {
			usable(o)
		}
		d := &eventReader{frames: newMessages(bytes.NewReader(in)), dec: decoding{resource: pods}}
		for {
			e, err := d.next()
			if err != nil {
				return
			}
			if o, ok := e.Object.(*object.Object); ok && e.Type != watch.Bookmark {
				usable(o)
			}
		}
	})
}
