package library

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// BenchmarkDecode decodes pods like those of a cluster, from JSON and from protobuf, with
// managedFields and without. The results are in docs/library.md.
func BenchmarkDecode(b *testing.B) {
	protobuf, err := informer.NewProtobufCodec(&corev1.Pod{}, scheme.Scheme)
	require.NoError(b, err)
	json := informer.NewCodec(&corev1.Pod{}, scheme.Scheme)
	for _, kept := range []string{"sent", "kept"} {
		for _, tc := range []struct {
			name  string
			codec informer.Codec
		}{{"json", json}, {"protobuf", protobuf}} {
			b.Run(kept+"/"+tc.name, func(b *testing.B) {
				var pods []*object.Object
				bytes := 0
				for i := range 100 {
					pod := objects.Pod("shop", i, 1)
					if kept == "kept" {
						pod.ManagedFields = nil
					}
					o, err := tc.codec.Encode(pod)
					require.NoError(b, err)
					bytes += o.Size()
					pods = append(pods, o)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := tc.codec.Decode(pods[i%len(pods)]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(bytes/len(pods)), "bytes/pod")
			})
		}
	}
}
