package store_test

import (
	"fmt"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

// A collection takes objects and the checkpoint at which they are complete as one unit. It is not
// synced before the commit of a complete list.
func ExampleCollection() {
	db := memory.New()
	defer db.Close()
	pods, err := db.Open(store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}, store.FieldIndex("node", "spec.nodeName"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("synced:", pods.State().Synced)

	till, err := object.Parse([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"till","resourceVersion":"5"},"spec":{"nodeName":"n1"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	list, err := pods.Replace()
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := list.Apply([]store.Change{{Key: till.Key(), Object: till}}); err != nil {
		fmt.Println(err)
		return
	}
	if err := list.Commit(store.Checkpoint{RV: "7"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("synced:", pods.State().Synced, "at", pods.State().RV)

	v, err := pods.View()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer v.Close()
	for key, err := range v.IndexKeys("node", "n1", "") {
		fmt.Println(key, err)
	}
	// Output:
	// synced: false
	// synced: true at 7
	// shop/till <nil>
}
