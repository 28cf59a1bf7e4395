package object_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/object"
)

// An object is its JSON. The fields that a cache needs are parsed at once, the rest is decoded on
// demand.
func ExampleParse() {
	o, err := object.Parse([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"till","resourceVersion":"7"},"spec":{"nodeName":"n1"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(o.Kind(), o.Key(), o.GetResourceVersion())
	fmt.Println(o.Field("spec.nodeName"))
	var m metav1.PartialObjectMetadata
	fmt.Println(o.Into(&m), m.Name)
	// Output:
	// Pod shop/till 7
	// n1 true
	// <nil> till
}
