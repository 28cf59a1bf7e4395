package reflector_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// A reflector over a client of client-go fills a queue, from the checkpoint of the last run. It
// makes no list: the watch continues at the checkpoint, and a deletion since then is an event.
func Example() {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		fmt.Println(err)
		return
	}
	client := &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			fmt.Println("asked for", o.Limit, "object of the newest state")
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "60"}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			fmt.Println("watch from", o.ResourceVersion)
			w := watch.NewFakeWithChanSize(1, false)
			w.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", ResourceVersion: "57"}})
			return w, nil
		},
	}
	checkpoint := store.Checkpoint{RV: "50", Cluster: "uid:of-the-cluster"}
	queue := deltafifo.New(deltafifo.Options{})
	queue.Start(checkpoint.RV)
	r := reflector.New(reflector.Options{
		Queue: queue, Checkpoint: checkpoint,
		Source: reflector.NewListWatch(client, reflector.ListWatchOptions{Encode: informer.NewCodec(&corev1.Pod{}, scheme).Encode}),
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()

	batch, err := queue.PopBatch(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range batch.Deltas {
		fmt.Println(d.Key, d.Deltas.Newest().Type)
	}
	fmt.Println("complete up to", batch.Watermark)
	cancel()
	<-done
	// Output:
	// asked for 1 object of the newest state
	// watch from 50
	// shop/till Deleted
	// complete up to 57
}
