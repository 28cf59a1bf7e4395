package informer

import (
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
// each namespace has; so has what different selectors select. What a cache's informers list
// is read from the address of a request, which is not sent; so resource, version, namespace
// and selectors are known and a change of them is noticed. Of [WithScope] only the name of
// the transform counts then. A transform without a name there makes a list at each start.
//
// An informer whose collection another one has, of this cache or of another on db, waits
// until that has stopped, and reports it as [WithStore] describes. An informer that was
// removed from a cache and is made again so begins when the removed one has ended.
//
// If the requests have no address, because the client is not one of net/http,
// [WithScope] has to give namespace and selectors. Then only the first informer of a kind
// that the function makes resumes from what is stored. Whether a second one lists the same is
// not known: it waits for the first to stop too, and then lists.
func NewFunc(db store.DB, opts ...Option) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	var mu sync.Mutex
	guessed := map[string]bool{} // ids whose scope is not known
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		if _, err := formOf(example); err != nil {
			return NewSharedIndexInformer(lw, example, resync, indexers, opts...) // which reports it
		}
		o := newOptions(opts)
		scope, known := targetOf(lw)
		if !known {
			scope = o.scope
		}
		scope.Transform = o.scope.Transform
		id := collectionID(example, scope)
		if !known {
			id = kindID(example, o.scheme, scope)
			mu.Lock()
			if guessed[id] {
				scope.Transform += unnamed() // nothing that is stored was made so
			}
			guessed[id] = true
			mu.Unlock()
		}
		return NewSharedIndexInformer(lw, example, resync, indexers, slices.Concat([]Option{WithStore(db, id)}, opts, []Option{WithScope(scope)})...)
	}
}
