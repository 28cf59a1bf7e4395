package informer_test

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// unknown returns a field that no version has, with some text in it.
func unknown(text string) []byte {
	b := protowire.AppendTag(nil, 5000, protowire.BytesType)
	return protowire.AppendVarint(protowire.AppendTag(protowire.AppendString(b, text), 5001, protowire.VarintType), 7)
}

// withFields appends the length-delimited fields of one number.
func withFields(to []byte, n protowire.Number, values ...[]byte) []byte {
	for _, v := range values {
		to = protowire.AppendBytes(protowire.AppendTag(to, n, protowire.BytesType), v)
	}
	return to
}

// withUnknown returns a message with unknown fields, at the end of it and of each field of the given
// path of messages within it.
func withUnknown(t *testing.T, message []byte, path ...protowire.Number) []byte {
	var out []byte
	for len(message) > 0 {
		n, typ, size := protowire.ConsumeField(message)
		require.Positive(t, size)
		field := message[:size]
		if len(path) > 0 && n == path[0] && typ == protowire.BytesType {
			value, err := object.ProtobufField(field, n)
			require.NoError(t, err)
			field = withFields(nil, n, withUnknown(t, value, path[1:]...))
		}
		out, message = append(out, field...), message[size:]
	}
	return append(out, unknown("of a newer server")...)
}

// TestUnknownFields reads objects of a server that has more fields than this program's API version,
// by a list and by a watch. The store returns them byte for byte, in every built-in kind.
func TestUnknownFields(t *testing.T) {
	db := boltDB(t, filepath.Join(t.TempDir(), "db"))
	defer func() { require.NoError(t, db.Close()) }()
	for _, b := range builtins(t) {
		t.Run(b.gvk.String(), func(t *testing.T) {
			fill := filler(2)
			newer := func() (raw, body []byte) {
				m := b.example()
				fill(m)
				m.SetOwnerReferences([]metav1.OwnerReference{{Name: "owner"}})
				body = make([]byte, m.Size())
				_, err := m.MarshalToSizedBuffer(body)
				require.NoError(t, err)
				const objectMeta, ownerReferences = 1, 13
				body = withUnknown(t, body, objectMeta, ownerReferences)
				raw, inner := object.NewEnvelope(b.gvk.ToAPIVersionAndKind()).New(len(body))
				copy(inner, body)
				require.Equal(t, 3, bytes.Count(raw, unknown("of a newer server")))
				return raw, body
			}
			listed, item := newer()
			watched, _ := newer()
			resource := upstream.Resource{GVR: schema.GroupVersionResource{Group: b.gvk.Group, Version: b.gvk.Version, Resource: "things"}, Kind: b.gvk.Kind, Namespaced: true}
			cluster, err := upstream.New(protobufServer(t, b.gvk, [][]byte{item}, [][]byte{watched}))
			require.NoError(t, err)
			defer cluster.Close()
			source := cluster.Source(upstream.SourceOptions{Resource: resource, Protobuf: true})

			info := store.Info{ID: b.gvk.String(), Group: b.gvk.Group, Version: b.gvk.Version, Resource: "things", Kind: b.gvk.Kind, Namespaced: true}
			coll, err := db.Open(info)
			require.NoError(t, err)
			replacement, err := coll.Replace()
			require.NoError(t, err)
			var keys []string
			apply := func(o *object.Object, apply func([]store.Change) error) {
				keys = append(keys, o.Key())
				require.NoError(t, apply([]store.Change{{Key: o.Key(), Object: o}}))
			}
			rv, err := source.List(t.Context(), upstream.ListOptions{}, func(o *object.Object) error {
				apply(o, replacement.Apply)
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, replacement.Commit(store.Checkpoint{RV: rv}))
			w, err := source.Watch(t.Context(), rv, time.Minute)
			require.NoError(t, err)
			defer w.Stop()
			seen, ok := (<-w.ResultChan()).Object.(*object.Object)
			require.True(t, ok)
			apply(seen, func(changes []store.Change) error {
				return coll.Apply(store.Batch{Changes: changes, Checkpoint: store.Checkpoint{RV: "13"}})
			})
			require.Len(t, keys, 2)

			require.NoError(t, db.Flush())
			codec, err := informer.NewProtobufCodec(b.example(), scheme.Scheme)
			require.NoError(t, err)
			view, err := coll.View()
			require.NoError(t, err)
			defer view.Close()
			for n, want := range [][]byte{listed, watched} {
				got, err := view.Get(keys[n])
				require.NoError(t, err)
				require.Equal(t, want, got.Raw())
				_, err = codec.Decode(got)
				require.NoError(t, err, "unknown fields are ignored by the codec")
				require.Equal(t, "owner", got.GetObjectMeta().GetOwnerReferences()[0].Name)
			}
		})
	}
}

// protobufServer answers lists of one resource with items, which are messages of objects, and watches
// with objects.
func protobufServer(t *testing.T, gvk schema.GroupVersionKind, items, watched [][]byte) *rest.Config {
	meta, err := (&metav1.ListMeta{ResourceVersion: "12"}).Marshal()
	require.NoError(t, err)
	message := append(withFields(nil, 1, meta), unknown("of the list")...)
	message = append(withFields(message, 2, items...), unknown("of the list")...)
	list, body := object.NewEnvelope(gvk.GroupVersion().String(), gvk.Kind+"List").New(len(message))
	copy(body, message)
	var events []byte
	for _, raw := range watched {
		event, err := (&metav1.WatchEvent{Type: string(watch.Added), Object: runtime.RawExtension{Raw: raw}}).Marshal()
		require.NoError(t, err)
		event = append(event, unknown("of the event")...)
		events = append(binary.BigEndian.AppendUint32(events, uint32(len(event))), event...)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		switch {
		case strings.Contains(r.URL.Path, "/namespaces/"): // the cluster's identity
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Query().Get("watch") == "":
			_, _ = w.Write(list)
		default:
			_, _ = w.Write(events)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(srv.Close)
	return &rest.Config{Host: srv.URL}
}
