package informer_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
)

// builtin is a kind of Kubernetes' own API with a protobuf form.
type builtin struct {
	gvk schema.GroupVersionKind
	typ reflect.Type
}

func (b builtin) example() message { return reflect.New(b.typ).Interface().(message) }

// message is an object with a protobuf form.
type message interface {
	runtime.Object
	metav1.Object
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

// builtins returns all kinds of client-go's scheme that have metadata and a protobuf form, in order
// of their names.
func builtins(t testing.TB) []builtin {
	var all []builtin
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if _, ok := reflect.New(typ).Interface().(message); ok {
			all = append(all, builtin{gvk, typ})
		}
	}
	slices.SortFunc(all, func(a, b builtin) int { return strings.Compare(a.gvk.String(), b.gvk.String()) })
	require.Greater(t, len(all), 100)
	return all
}

// filler returns a function that fills objects with random values, the same for each seed.
func filler(seed int64) func(message) {
	f := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), serializer.NewCodecFactory(scheme.Scheme)).NumElements(0, 2)
	n := 0
	return func(m message) {
		f.Fill(m)
		n++
		m.SetName(fmt.Sprintf("o-%d", n))
		if len(m.GetNamespace()) > 0 {
			m.SetNamespace("ns")
		}
		for i := range m.GetManagedFields() {
			m.GetManagedFields()[i].FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)
		}
	}
}

// The two forms in which a durable store keeps objects are equivalent for every built-in kind: the
// protobuf form is what a kube-apiserver sends, its metadata is that of JSON, and both are decoded to
// the same object.
func TestStoredFormsAreEquivalent(t *testing.T) {
	reference := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	for _, b := range builtins(t) {
		t.Run(b.gvk.String(), func(t *testing.T) {
			packed, err := informer.NewProtobufCodec(b.example(), scheme.Scheme)
			require.NoError(t, err)
			text := informer.NewCodec(b.example(), scheme.Scheme)
			fill, objects := filler(1), 20
			if os.Getenv("SNAPCACHE_TEST_EXEC") != "" { // under an emulator (test/cross.sh)
				objects = 4
			}
			for n := range objects {
				m := b.example()
				m.SetName("bare")
				if n > 0 {
					fill(m)
				}
				p, err := packed.Encode(m)
				require.NoError(t, err)
				j, err := text.Encode(m)
				require.NoError(t, err)

				typed := m.DeepCopyObject()
				typed.GetObjectKind().SetGroupVersionKind(b.gvk)
				var sent bytes.Buffer
				require.NoError(t, reference.Encode(typed, &sent))
				require.Equal(t, sent.Bytes(), p.Raw())
				raw, body := object.NewEnvelope(b.gvk.ToAPIVersionAndKind()).New(m.Size())
				_, err = m.MarshalToSizedBuffer(body)
				require.NoError(t, err)
				require.Equal(t, sent.Bytes(), raw)

				require.True(t, p.Protobuf())
				require.False(t, j.Protobuf())
				require.Equal(t, identity(j), identity(p))
				require.True(t, apiequality.Semantic.DeepEqual(j.GetObjectMeta(), p.GetObjectMeta()), "%s\n%s", j.JSON(), p.JSON())

				fromJSON, err := text.Decode(j)
				require.NoError(t, err)
				for _, read := range []informer.Codec{packed, text} {
					fromProtobuf, err := read.Decode(p)
					require.NoError(t, err)
					require.True(t, apiequality.Semantic.DeepEqual(fromJSON, fromProtobuf), "%s\n%s", j.JSON(), asJSON(t, text, fromProtobuf))
					require.True(t, apiequality.Semantic.DeepEqual(m, fromProtobuf), "%s\n%s", j.JSON(), asJSON(t, text, fromProtobuf))
				}
			}
		})
	}
}

// identity is the metadata that an object parses.
func identity(o *object.Object) []any {
	return []any{o.Key(), o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion(), o.APIVersion(), o.Kind(), o.Labels()}
}

func asJSON(t *testing.T, codec informer.Codec, obj runtime.Object) []byte {
	o, err := codec.Encode(obj)
	require.NoError(t, err)
	return o.JSON()
}

// Every built-in kind is stored as protobuf if it has that form: none has its metadata elsewhere.
func TestBuiltinKindsHaveProtobuf(t *testing.T) {
	packed := map[reflect.Type]bool{}
	for _, b := range builtins(t) {
		packed[b.typ] = true
	}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		obj := reflect.New(typ).Interface().(runtime.Object)
		if _, err := meta.Accessor(obj); err == nil {
			require.True(t, packed[typ], gvk)
		}
	}
}
