package kubeapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// BenchmarkProtobuf has the steps of which a list of pods as JSON, or as protobuf, would be made: what an agent does, and
// what its client does (docs/decisions/protobuf.md). Figures are of one pod.
func BenchmarkProtobuf(b *testing.B) {
	const pods = 500
	x := newBench(b)
	request := httptest.NewRequest(http.MethodGet, "/api/v1/pods?limit=500", nil)
	answer := httptest.NewRecorder()
	x.ServeHTTP(answer, request)
	require.Equal(b, http.StatusOK, answer.Code)
	list := answer.Body.Bytes()

	decoder := scheme.Codecs.UniversalDeserializer()
	decode := func(data []byte) *corev1.PodList {
		o, _, err := decoder.Decode(data, nil, nil)
		require.NoError(b, err)
		require.Len(b, o.(*corev1.PodList).Items, pods)
		return o.(*corev1.PodList)
	}
	typed := decode(list)
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	require.True(b, ok)
	packed, err := runtime.Encode(info.Serializer, typed)
	require.NoError(b, err)

	for _, step := range []struct {
		name string
		do   func()
		size int
	}{
		{"agent answers JSON", func() { x.ServeHTTP(discard{http.Header{}}, request) }, len(list)},
		{"agent decodes", func() { decode(list) }, 0},
		{"agent encodes protobuf", func() { require.NoError(b, info.Serializer.Encode(typed, io.Discard)) }, len(packed)},
		{"client decodes JSON", func() { decode(list) }, 0},
		{"client decodes protobuf", func() { decode(packed) }, 0},
	} {
		b.Run(step.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				step.do()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/pods, "µs/pod")
			if step.size > 0 {
				b.ReportMetric(float64(step.size)/pods, "B/pod")
			}
		})
	}
}

// discard is a response without a reader.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
