package informer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
)

// twoPods takes the place of a server with two pods, on which nothing happens.
var twoPods = &cache.ListWatch{
	ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return &corev1.PodList{
			ListMeta: metav1.ListMeta{ResourceVersion: "7"},
			Items:    []corev1.Pod{*pod("shop", "door", "n1", 3), *pod("shop", "till", "n2", 5)},
		}, nil
	},
	WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
}

// noServer takes the place of a server that can't be reached.
var noServer = &cache.ListWatch{
	ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return nil, errors.New("no route to host")
	},
	WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		return nil, errors.New("no route to host")
	},
}

// A durable informer has the objects of before after a restart, with or without a server.
func ExampleNewSharedIndexInformer() {
	dir, err := os.MkdirTemp("", "informer")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	for _, server := range []cache.ListerWatcher{twoPods, noServer} {
		db, err := bolt.Open(filepath.Join(dir, "cache.db"), bolt.Options{NoHistory: true})
		if err != nil {
			fmt.Println(err)
			return
		}
		pods := informer.NewSharedIndexInformer(server, &corev1.Pod{}, 0, cache.Indexers{"node": byNode}, informer.WithStore(db, "pods"))
		handle, err := pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(obj any, isInInitialList bool) {
				fmt.Println("add", obj.(*corev1.Pod).Name, isInInitialList)
			},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			pods.RunWithContext(ctx)
		}()
		cache.WaitFor(ctx, "", handle.HasSyncedChecker())
		keys, err := pods.GetIndexer().IndexKeys("node", "n2")
		fmt.Println("on n2:", keys, err)

		cancel()
		<-done // before the store is closed
		if err := db.Close(); err != nil {
			fmt.Println(err)
		}
	}

	// Output:
	// add door true
	// add till true
	// on n2: [shop/till] <nil>
	// add door true
	// add till true
	// on n2: [shop/till] <nil>
}

// An Indexer is client-go's cache.Indexer on a store.
func ExampleNewIndexer() {
	pods := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"node": byNode})
	for _, p := range []*corev1.Pod{pod("shop", "door", "n1", 3), pod("shop", "till", "n2", 5)} {
		if err := pods.Add(p); err != nil {
			fmt.Println(err)
		}
	}
	onN2, err := pods.ByIndex("node", "n2")
	fmt.Println(onN2[0].(*corev1.Pod).Name, err)
	fmt.Println(pods.ListIndexFuncValues("node"))
	// Output:
	// till <nil>
	// [n1 n2]
}

// Objects of a type that has a protobuf form can be stored in that form.
func ExampleNewProtobufCodec() {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		fmt.Println(err)
		return
	}
	codec, err := informer.NewProtobufCodec(&corev1.Pod{}, scheme)
	if err != nil {
		fmt.Println(err)
		return
	}
	db := memory.New()
	defer db.Close()
	pods := informer.NewIndexer(&corev1.Pod{}, nil, informer.WithStore(db, "pods"), informer.WithScheme(scheme), informer.WithCodec(codec))
	if err := pods.Add(pod("shop", "till", "n2", 5)); err != nil {
		fmt.Println(err)
		return
	}
	till, _, err := pods.GetByKey("shop/till")
	fmt.Println(till.(*corev1.Pod).Spec.NodeName, err)
	// Output:
	// n2 <nil>
}

// Metrics are client_golang's, for the program's registry.
func ExampleNewMetrics() {
	metrics := informer.NewMetrics()
	prometheus.NewRegistry().MustRegister(metrics)
	_ = informer.NewSharedIndexInformer(twoPods, &corev1.Pod{}, 0, nil, informer.WithMetrics(metrics))
	// Output:
}
