package informer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// NewFunc returns a function that makes durable informers in db, with opts. It fits
// controller-runtime's cache.Options.NewInformer:
//
//	cache.Options{NewInformer: informer.NewFunc(db, informer.WithScheme(scheme))}
//
// Each kind of object, namespace and set of selectors has a collection of its own. They are read
// from the address of a request that is not sent; of [WithScope], only the name of the transform is
// used, without which each start makes a list.
//
// If the requests have no address, because the client is not one of net/http, [WithScope] has to
// have namespace and selectors. Then only the first informer of a kind that the function makes
// resumes from the stored state. A second one may list other objects: it waits for the first to
// stop, and then lists.
func NewFunc(db store.DB, opts ...Option) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	var mu sync.Mutex
	var history reflector.History
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
		return NewSharedIndexInformer(lw, example, resync, indexers, slices.Concat([]Option{WithStore(db, id), sharing(&history)}, opts, []Option{WithScope(scope)})...)
	}
}

// collectionID returns the id of an informer's collection: "pods", "deployments.apps@shop", "pods
// (metadata) [labels app=a]". Each of the three forms of one resource is a collection of its own,
// and so are the objects of different selectors.
func collectionID(example runtime.Object, scope store.Scope) string {
	id := scope.GVR.GroupResource().String()
	if scope.Namespace != "" {
		id += "@" + scope.Namespace
	}
	switch example.(type) {
	case *metav1.PartialObjectMetadata:
		id += " (metadata)"
	case runtime.Unstructured:
		id += " (unstructured)"
	}
	var selectors []string
	if scope.LabelSelector != "" {
		selectors = append(selectors, "labels "+scope.LabelSelector)
	}
	if scope.FieldSelector != "" {
		selectors = append(selectors, "fields "+scope.FieldSelector)
	}
	if len(selectors) > 0 {
		id += " [" + shortened(strings.Join(selectors, "; ")) + "]"
	}
	return id
}

const (
	maxSelectors = 64 // bytes of selectors in an id
	shortenedTo  = 40 // bytes of longer selectors that are left
)

// shortened returns selectors for an id: in full or, if they are too long, truncated and with 64
// bits of a digest of the whole.
func shortened(selectors string) string {
	if len(selectors) <= maxSelectors {
		return selectors
	}
	sum := sha256.Sum256([]byte(selectors))
	return fmt.Sprintf("%s~%x", strings.ToValidUTF8(selectors[:shortenedTo], ""), sum[:8])
}

const (
	targetTimeout = 30 * time.Second // until a request has its connection, which may take a credential
	connectPause  = time.Second      // how long a new connection waits at most for the end of its list
)

// targetOf returns the scope of a ListerWatcher. known is false if its lists have no address, or one that is not
// of the Kubernetes API.
func targetOf(lw cache.ListerWatcher) (scope store.Scope, known bool) {
	address := addressOf(lw)
	if address == nil {
		return store.Scope{}, false
	}
	return scopeOf(address)
}

// addressOf returns the address of a ListerWatcher's lists without sending a request: it begins a list, cancels it
// before it has a connection, and reads the address in the error. It returns nil if the client takes no context or
// does not use net/http.
func addressOf(lw cache.ListerWatcher) *url.URL {
	client, ok := lw.(cache.ListerWithContext)
	if l, plain := lw.(*cache.ListWatch); !ok || plain && l.ListWithContextFunc == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), targetTimeout)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { cancel() },
		// A connection that is ready before the list is canceled would be used, so delay it. If the
		// connection is not made in a goroutine of its own, the wait delays the list too.
		ConnectStart: func(string, string) {
			_ = sleep.UnlessWoken(context.Background(), clock.RealClock{}, connectPause, ended)
		},
	})
	_, err := client.ListWithContext(ctx, metav1.ListOptions{
		// The cheapest list, in case it is sent on an open connection nevertheless.
		Limit: 1, ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	var failed *url.Error
	if !errors.As(err, &failed) {
		return nil
	}
	address, err := url.Parse(failed.URL)
	if err != nil {
		return nil
	}
	return address
}

// scopeOf returns the scope in the address of a list. known is false for an address that is not of
// the Kubernetes API.
func scopeOf(address *url.URL) (scope store.Scope, known bool) {
	path := strings.Split(strings.Trim(address.Path, "/"), "/")
	// Counted from the end, because the API's path may have a prefix.
	last := func(n int) string {
		if n > len(path) {
			return ""
		}
		return path[len(path)-n]
	}
	scope.GVR.Resource = last(1)
	if last(3) == "namespaces" {
		scope.Namespace = last(2)
		path = path[:len(path)-2]
	}
	switch {
	case last(4) == "apis":
		scope.GVR.Group, scope.GVR.Version = last(3), last(2)
	case last(3) == "api":
		scope.GVR.Version = last(2)
	default:
		return store.Scope{}, false
	}
	query := address.Query()
	scope.LabelSelector, scope.FieldSelector = query.Get("labelSelector"), query.Get("fieldSelector")
	return scope, scope.GVR != schema.GroupVersionResource{} && scope.GVR.Resource != ""
}
