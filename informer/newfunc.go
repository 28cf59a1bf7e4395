package informer

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/store"
)

// NewFunc returns a function that makes durable informers in db, with opts. It fits
// controller-runtime's cache.Options.NewInformer:
//
//	cache.Options{NewInformer: informer.NewFunc(db, informer.WithScheme(scheme))}
//
// Each kind of object has a collection of its own, and in a cache of several namespaces
// each namespace has. What a cache's informers list is read from the address of a
// request, which is not sent; so resource, version, namespace and selectors are known
// and a change of them is noticed. Of [WithScope] only the name of the transform counts
// then. A transform without a name there makes a list at each start.
//
// Where the requests have no address, because the client is not one of net/http,
// [WithScope] has to tell namespace and selectors, and a second informer of a kind
// never syncs and says why. Neither does one of the same kind in the same namespace.
func NewFunc(db store.DB, opts ...Option) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	var mu sync.Mutex
	taken := map[string]bool{}
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		o := newOptions(opts)
		scope, known := targetOf(lw)
		id := collectionID(example, scope.GVR.GroupResource(), scope.Namespace)
		if !known {
			scope = o.scope
			id = kindID(example, o.scheme, scope.Namespace)
		}
		scope.Transform = o.scope.Transform
		mu.Lock()
		again := taken[id]
		taken[id] = true
		mu.Unlock()
		if again {
			lw = failing(fmt.Errorf("a second informer of %s can't be durable beside the first", id))
			return NewSharedIndexInformer(lw, example, resync, indexers, opts...)
		}
		return NewSharedIndexInformer(lw, example, resync, indexers, slices.Concat([]Option{WithStore(db, id)}, opts, []Option{WithScope(scope)})...)
	}
}

// kindID names the collection of a kind, or, where nobody knows the kind, of a Go
// type.
func kindID(example runtime.Object, scheme *runtime.Scheme, namespace string) string {
	return collectionID(example, guessResource(example, kindOf(example, scheme)).GroupResource(), namespace)
}
