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
// Each kind of object, each namespace in a cache of several, and each set of selectors has a
// collection of its own. They are read from the address of a request that is not sent; [WithScope]
// is then used only for the name of the transform, without which each start makes a list. An
// informer that was removed from a cache and is made again begins when the removed one has ended.
//
// If the requests have no address, because the client is not one of net/http, [WithScope] has to
// have namespace and selectors. Then only the first informer of a kind that the function makes
// resumes from the stored state. A second one may list other objects: it waits for the first to
// stop, and then lists.
func NewFunc(db store.DB, opts ...Option) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	var mu sync.Mutex
	guessed := map[string]bool{} // ids whose scope is not known
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		if _, err := formOf(example); err != nil {
			return NewSharedIndexInformer(lw, example, resync, indexers, opts...) // Run reports the error
		}
		o := newOptions(opts)
		scope, known := targetOf(lw)
		if !known {
			scope = o.scope
		}
		scope.Transform = o.scope.Transform
		id := collectionID(example, scope)
		if !known {
			guess := scope
			guess.GVR = guessResource(example, kindOf(example, o.scheme))
			id = collectionID(example, guess)
			mu.Lock()
			if guessed[id] {
				scope.Transform += unnamed() // no stored state has this name, so it is listed again
			}
			guessed[id] = true
			mu.Unlock()
		}
		return NewSharedIndexInformer(lw, example, resync, indexers, slices.Concat([]Option{WithStore(db, id)}, opts, []Option{WithScope(scope)})...)
	}
}
