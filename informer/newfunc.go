package informer

import (
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/store"
)

// NewFunc returns a function that makes durable informers in db, with opts. It fits
// controller-runtime's cache.Options.NewInformer:
//
//	cache.Options{NewInformer: informer.NewFunc(db, informer.WithScheme(scheme))}
//
// Each kind of object has a collection of its own. What a cache's informers list is
// hidden from the function, so:
//
//   - A cache of several namespaces can't be durable. The second informer of a kind
//     never syncs and says why.
//   - Namespace, selectors and transform have to be told by [WithScope]. Where they
//     change from one start to the next and WithScope does not, the cache holds
//     what was listed before. A transform without a name there makes a list at each
//     start.
//
// Where they differ from kind to kind, NewInformer can be a function that chooses
// among several functions of NewFunc.
func NewFunc(db store.DB, opts ...Option) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	var mu sync.Mutex
	taken := map[string]bool{}
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		o := newOptions(opts)
		id := kindID(example, o.scheme, o.scope.Namespace)
		mu.Lock()
		again := taken[id]
		taken[id] = true
		mu.Unlock()
		if again {
			lw = failing(fmt.Errorf("a second informer of %s: a cache of several namespaces can't be durable", id))
			return NewSharedIndexInformer(lw, example, resync, indexers, opts...)
		}
		return NewSharedIndexInformer(lw, example, resync, indexers, append([]Option{WithStore(db, id)}, opts...)...)
	}
}

// kindID names the collection of a kind, or, where nobody knows the kind, of a Go
// type.
func kindID(example runtime.Object, scheme *runtime.Scheme, namespace string) string {
	gvk := kindOf(example, scheme)
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	if gvk.Empty() {
		t := reflect.TypeOf(example).Elem()
		gvr.Resource = t.PkgPath() + "." + t.Name()
	}
	return collectionID(example, gvr.GroupResource(), namespace)
}
