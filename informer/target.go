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

// targetTimeout bounds what comes before the connection of a request: a client's own
// limit of requests, a credential that has to be fetched.
const targetTimeout = 30 * time.Second

// connectPause bounds how long a connection waits for the end of the list that it was begun for.
const connectPause = time.Second

// targetOf finds out what a ListerWatcher lists, without asking the server: it begins a
// list and ends it before it has a connection, and the error that this makes names the
// address. known is false where that does not work: a client that takes no context, or
// is not one of net/http.
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
		// A connection that is there before the end is seen would be used. One that is not made
		// in a goroutine of its own would be waited for.
		ConnectStart: func(string, string) {
			select {
			case <-ended:
			case <-time.After(connectPause):
			}
		},
	})
	_, err := client.ListWithContext(ctx, metav1.ListOptions{
		// Should it get through after all, on a connection that was there, it is the cheapest
		// there is.
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

// scopeOf reads what is listed from the address of a list. known is false for an
// address that is not of the Kubernetes API.
func scopeOf(address *url.URL) (scope store.Scope, known bool) {
	path := strings.Split(strings.Trim(address.Path, "/"), "/")
	// From the end, since there may be a path before the API's.
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
