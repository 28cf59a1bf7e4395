package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// Constructor makes a shared informer, or returns nil to leave it to client-go. It has the arguments of
// [cache.NewSharedIndexInformerWithOptions]; see docs/decisions/informer-constructor.md. It is safe for concurrent use.
type Constructor = func(lw cache.ListerWatcher, example runtime.Object, opts cache.SharedIndexInformerOptions) cache.SharedIndexInformer

// NewConstructor returns a function that makes the informers of a program that was written for client-go's. Their
// collections are in db, with the ids of [NewFunc].
//
// A program may make several informers of the same objects. The second has a collection of its own, "pods #2", which
// another informer may have once the second has stopped.
//
// The function returns nil if an informer can't be durable, so that client-go makes its own: if the type of its objects
// has no stored form, if the address of its requests can't be known (see [NewFunc]), or if that is not of server, an
// address too, of which [WithIdentity] speaks. Each is logged. The metrics of an InformerMetricsProvider are not served.
func NewConstructor(db store.DB, server string, opts ...Option) Constructor {
	taken := &takenIDs{ids: map[string]bool{}}
	history := new(reflector.History)
	return func(lw cache.ListerWatcher, example runtime.Object, o cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
		defaults := newOptions(opts)
		scope, err := scopeAt(server, lw, example)
		if err != nil {
			cmp.Or(defaults.logger, slog.Default()).Warn("an informer is not durable: it is in memory, and each start lists everything",
				"type", fmt.Sprintf("%T", example), "error", err)
			return nil
		}
		scope.Transform = defaults.scope.Transform
		id := taken.take(collectionID(example, scope))
		all := slices.Concat([]Option{WithStore(db, id), sharing(history)}, opts, []Option{WithScope(scope)})
		return &tenant{
			SharedIndexInformer: NewSharedIndexInformer(lw, example, o.ResyncPeriod, o.Indexers, all...),
			leave:               func() { taken.release(id) },
		}
	}
}

// scopeAt returns the scope of a ListerWatcher, or why its informer can't be durable on objects of one server.
func scopeAt(server string, lw cache.ListerWatcher, example runtime.Object) (store.Scope, error) {
	if _, err := formOf(example); err != nil {
		return store.Scope{}, err
	}
	address := addressOf(lw)
	if address == nil {
		return store.Scope{}, errors.New("the address of its requests is not known: the client takes no context, or does not use net/http")
	}
	if own, err := url.Parse(server); err != nil || own.Host != address.Host {
		return store.Scope{}, fmt.Errorf("its server is %s, and the program's cache is of %s", address.Host, server)
	}
	scope, known := scopeOf(address)
	if !known {
		return store.Scope{}, fmt.Errorf("%s is not an address of the Kubernetes API", address.Path)
	}
	return scope, nil
}

// takenIDs are the ids of informers that were made and have not stopped.
type takenIDs struct {
	mu  sync.Mutex
	ids map[string]bool
}

// take returns the first of id, "id #2", "id #3" that is free.
func (t *takenIDs) take(id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	free := id
	for n := 2; t.ids[free]; n++ {
		free = fmt.Sprintf("%s #%d", id, n)
	}
	t.ids[free] = true
	return free
}

func (t *takenIDs) release(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ids, id)
}

// tenant is an informer that gives its id back when it has stopped.
type tenant struct {
	cache.SharedIndexInformer
	leave func()
}

func (t *tenant) Run(stop <-chan struct{}) { t.RunWithContext(wait.ContextForChannel(stop)) }

func (t *tenant) RunWithContext(ctx context.Context) {
	defer t.leave()
	t.SharedIndexInformer.RunWithContext(ctx)
}
