package e2e

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// history holds all events of a resource's objects since its start. From them the state at any
// resourceVersion is known.
type history struct {
	first map[string]string // canonical objects by key

	mu     sync.Mutex
	events []happening
	newest string // the highest resourceVersion seen
	broken error  // why the history ended; it must not before the test does
}

// happening is one watch event. Its object is empty for a deletion.
type happening struct{ rv, key, object string }

// record starts a history, which continues until the test ends.
func record(t *testing.T, cp *controlplane.ControlPlane, resource schema.GroupVersionResource) *history {
	t.Helper()
	client := harness.Dynamic(t, cp.RESTConfig(controlplane.Admin))
	list, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	h := &history{first: make(map[string]string), newest: list.GetResourceVersion()}
	for _, o := range list.Items {
		h.first[object.Key(o.GetNamespace(), o.GetName())] = canonical(t, o.Object)
	}
	timeout := int64(12 * 3600) // the full forms take more than an hour
	w, err := client.Resource(resource).Watch(t.Context(), metav1.ListOptions{
		ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &timeout,
	})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.follow(t, w)
	}()
	t.Cleanup(func() {
		w.Stop()
		<-done
	})
	return h
}

func (h *history) follow(t *testing.T, w watch.Interface) {
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			h.end(apierrors.FromObject(e.Object))
			return
		}
		o := e.Object.(*unstructured.Unstructured)
		happened := happening{rv: o.GetResourceVersion(), key: object.Key(o.GetNamespace(), o.GetName())}
		if e.Type != watch.Deleted {
			happened.object = canonical(t, o.Object)
		}
		h.mu.Lock()
		h.events = append(h.events, happened)
		h.newest = happened.rv
		h.mu.Unlock()
	}
	h.end(context.Canceled)
}

func (h *history) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = err
}

// length returns the number of events so far.
func (h *history) length() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.events)
}

// at returns the state at a resourceVersion: canonical objects by key. It waits for an event past
// that resourceVersion, so it needs churn.
func (h *history) at(t *testing.T, rv string) map[string]string {
	t.Helper()
	compare := compareRV(t)
	poll(t, "the history is past "+rv, nil, func(context.Context) (bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return compare(h.newest, rv) > 0, h.broken
	})
	state := make(map[string]string, len(h.first))
	for key, o := range h.first {
		state[key] = o
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		switch {
		case compare(e.rv, rv) > 0:
			return state
		case e.object == "":
			delete(state, e.key)
		default:
			state[e.key] = e.object
		}
	}
	return state
}
