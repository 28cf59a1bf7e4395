package informer_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
)

const benchPods = 20_000

// BenchmarkIndexer compares reading from client-go's indexer with ours in memory.
func BenchmarkIndexer(b *testing.B) {
	for name, x := range map[string]cache.Indexer{
		"client-go": cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"node": byNode}),
		"memory":    informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"node": byNode}),
	} {
		for i := range benchPods {
			require.NoError(b, x.Update(pod("ns", "pod-"+strconv.Itoa(i), "n"+strconv.Itoa(i%100), i+1)))
		}
		b.Run("get/"+name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, ok, err := x.GetByKey("ns/pod-" + strconv.Itoa(i%benchPods)); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
		b.Run("byIndex/"+name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if list, err := x.ByIndex("node", "n"+strconv.Itoa(i%100)); len(list) != benchPods/100 || err != nil {
					b.Fatal(len(list), err)
				}
			}
		})
		b.Run("list/"+name, func(b *testing.B) {
			for b.Loop() {
				if len(x.List()) != benchPods {
					b.Fatal("not all")
				}
			}
		})
	}
}
