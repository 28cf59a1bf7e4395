package kubeapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// cable connects clients with a pipe until it is cut: then connections end, and others are refused.
type cable struct {
	pipe pipe

	mu      sync.Mutex
	isCut   bool
	refused int
	servers []net.Conn // the servers' ends of the connections
}

func (c *cable) dial(context.Context, string, string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		c.refused++
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	client, server, err := c.pipe.connect()
	if err != nil {
		c.refused++
		return nil, err
	}
	c.servers = append(c.servers, server)
	return client, nil
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, server := range c.servers {
		_ = server.Close() // it may be closed
	}
	c.isCut, c.servers = true, nil
}

// restore returns how many connections were refused.
func (c *cable) restore() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = false
	return c.refused
}

// record is what happened, in order.
type record struct {
	mu  sync.Mutex
	all []string
}

func (r *record) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, what)
}

// take returns what was not taken before.
func (r *record) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

func (r *record) call(what string, o any) {
	m, ok := o.(*unstructured.Unstructured)
	if !ok { // the informer found it missing in a list
		r.add(fmt.Sprintf("%s %v", what, o))
		return
	}
	r.add(what + " " + m.GetNamespace() + "/" + m.GetName() + "@" + m.GetResourceVersion())
}

// TestInformerAwayForAnHour cuts an informer of client-go from an agent, which starts again meanwhile. Its
// handler is called for what has changed, once for each object, without a list.
func TestInformerAwayForAnHour(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var requests, calls record
		pipe, closeAll := serveOnPipe(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			requests.add(r.URL.RawQuery)
			w.server.ServeHTTP(rw, r)
		}), io.Discard)
		defer closeAll()
		wire := &cable{pipe: pipe}
		transport := &http.Transport{DialContext: wire.dial}
		defer transport.CloseIdleConnections()
		client, err := dynamic.NewForConfig(&rest.Config{Host: "http://localhost", Transport: transport, QPS: -1})
		require.NoError(t, err)
		objects := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return objects.Watch(ctx, o)
			},
		}, &unstructured.Unstructured{}, 0, nil)
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { calls.call("add", o) },
			UpdateFunc: func(_, o any) { calls.call("update", o) },
			DeleteFunc: func(o any) { calls.call("delete", o) },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { informer.RunWithContext(ctx) })
		defer running.Wait()
		defer cancel()
		synctest.Wait()
		require.ElementsMatch(t, []string{"add a/x@11", "add b/x@12"}, calls.take()) // client-go adds the objects of a list in any order
		require.NotEmpty(t, requests.take())

		time.Sleep(time.Minute) // after less than a second client-go lists again
		wire.cut()
		for i := range 60 {
			time.Sleep(time.Minute)
			w.change("a/x", "web", "n"+strconv.Itoa(i))
			w.change("a/y", "web", "")
			w.remove("a/y")
			if i == 30 {
				w.stop(false)
				w.start()
			}
		}
		w.change("a/z", "db", "")
		w.remove("b/x")
		require.Empty(t, calls.take())
		require.Empty(t, requests.take())
		require.Greater(t, wire.restore(), 100)
		time.Sleep(time.Minute)
		synctest.Wait()
		last := w.rv
		require.Equal(t, []string{
			"update a/x@" + strconv.Itoa(last-4), "add a/z@" + strconv.Itoa(last-1), "delete b/x@" + strconv.Itoa(last),
		}, calls.take())
		made := requests.take()
		require.Len(t, made, 1, "the watch that continues")
		require.Contains(t, made[0], "resourceVersion=12&")
		require.NotContains(t, made[0], "sendInitialEvents")
		w.change("a/x", "db", "")
		require.Equal(t, []string{"update a/x@" + strconv.Itoa(w.rv)}, calls.take())
	})
}
