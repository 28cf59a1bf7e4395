package deltafifo_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
)

func configMap(name, rv string) *object.Object {
	o, err := object.Parse(fmt.Appendf(nil, `{"kind":"ConfigMap","metadata":{"namespace":"shop","name":%q,"uid":"u-%[1]s","resourceVersion":%q}}`, name, rv))
	if err != nil {
		panic(err) // of an example
	}
	return o
}

// A consumer takes all that is pending at once, with the resourceVersion up to which nothing is
// pending any more. Only that may be persisted, never an object's own.
func ExampleQueue_PopBatch() {
	q := deltafifo.New(deltafifo.Options{})
	q.Start("9") // what the consumer has
	for _, err := range []error{
		q.Add(configMap("a", "10")), q.Add(configMap("b", "11")), q.Update(configMap("a", "12")), q.Bookmark("20"),
	} {
		if err != nil {
			fmt.Println(err)
		}
	}
	batch, err := q.PopBatch(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range batch.Deltas {
		fmt.Print(d.Key, ":")
		for _, delta := range d.Deltas {
			fmt.Print(" ", delta.Type, " @", delta.Object.(*object.Object).GetResourceVersion())
		}
		fmt.Println()
	}
	fmt.Println("complete up to", batch.Watermark)
	// Output:
	// shop/a: Added @10 Updated @12
	// shop/b: Added @11
	// complete up to 20
}

// A list streams through the queue. An item that the consumer has already produces no delta; an
// object that the consumer has and the list does not is deleted.
func ExampleQueue_BeginReplace() {
	known := cache.NewStore(deltafifo.KeyOf)
	_ = known.Add(configMap("same", "3"))
	_ = known.Add(configMap("gone", "4"))
	q := deltafifo.New(deltafifo.Options{KnownObjects: deltafifo.KnownStore(known)})
	if err := q.BeginReplace(context.Background(), deltafifo.Replace{Reason: "expired"}); err != nil {
		fmt.Println(err)
		return
	}
	for _, o := range []*object.Object{configMap("new", "7"), configMap("same", "3")} {
		if err := q.ReplaceItem(o); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := q.EndReplace("8"); err != nil {
		fmt.Println(err)
		return
	}
	batch, err := q.PopBatch(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range batch.Deltas {
		fmt.Println(d.Key, d.Deltas.Newest().Type)
	}
	fmt.Println("complete:", batch.ListDone, "at", batch.Watermark)
	// Output:
	// shop/new Replaced
	// shop/gone Deleted
	// complete: true at 8
}
