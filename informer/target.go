package informer

import (
	"context"
	"errors"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/store"
)

const (
	targetTimeout = 30 * time.Second // until a request has its connection, which may take a credential
	connectPause  = time.Second      // how long a new connection waits at most for the end of its list
)

// targetOf returns the scope of a ListerWatcher without sending a request: it begins a list,
// cancels it before it has a connection, and reads the scope from the address in the error. known
// is false if the client takes no context or does not use net/http.
func targetOf(lw cache.ListerWatcher) (scope store.Scope, known bool) {
	client, ok := lw.(cache.ListerWithContext)
	if l, plain := lw.(*cache.ListWatch); !ok || plain && l.ListWithContextFunc == nil {
		return store.Scope{}, false
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
			select {
			case <-ended:
			case <-time.After(connectPause):
			}
		},
	})
	_, err := client.ListWithContext(ctx, metav1.ListOptions{
		// The cheapest list, in case it is sent on an open connection nevertheless.
		Limit: 1, ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	var failed *url.Error
	if !errors.As(err, &failed) {
		return store.Scope{}, false
	}
	address, err := url.Parse(failed.URL)
	if err != nil {
		return store.Scope{}, false
	}
	return scopeOf(address)
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
