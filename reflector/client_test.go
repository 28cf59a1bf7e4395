package reflector_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/upstream"
)

// typed is an object as a typed client returns it: without its own type.
func typed(name string, rv int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u", ResourceVersion: fmt.Sprint(rv), Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{NodeName: "n1"},
	}
}

// client is a scripted ListerWatcher. After the script's lists and watches it returns empty lists
// and watches that stay open.
type client struct {
	mu      sync.Mutex
	lists   []func(metav1.ListOptions) (runtime.Object, error)
	watches []func(metav1.ListOptions) (watch.Interface, error)
	asked   []string
}

func (c *client) List(o metav1.ListOptions) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, fmt.Sprintf("list limit=%d rv=%q match=%s continue=%q", o.Limit, o.ResourceVersion, o.ResourceVersionMatch, o.Continue))
	if len(c.lists) == 0 {
		return podList("100", ""), nil
	}
	f := c.lists[0]
	c.lists = c.lists[1:]
	return f(o)
}

func (c *client) Watch(o metav1.ListOptions) (watch.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	line := fmt.Sprintf("watch rv=%q", o.ResourceVersion)
	if o.SendInitialEvents != nil {
		line = fmt.Sprintf("watch-list rv=%q match=%s", o.ResourceVersion, o.ResourceVersionMatch)
	}
	c.asked = append(c.asked, line)
	if !o.AllowWatchBookmarks || o.TimeoutSeconds == nil || *o.TimeoutSeconds < 1 {
		return nil, fmt.Errorf("a watch without bookmarks or timeout: %v", o)
	}
	if len(c.watches) == 0 {
		return watch.NewFakeWithChanSize(0, false), nil
	}
	f := c.watches[0]
	c.watches = c.watches[1:]
	return f(o)
}

func podList(rv, next string, pods ...*corev1.Pod) *corev1.PodList {
	l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: rv, Continue: next}}
	for _, p := range pods {
		l.Items = append(l.Items, *p)
	}
	return l
}

// list returns a script's answer to a list.
func list(l runtime.Object) func(metav1.ListOptions) (runtime.Object, error) {
	return func(metav1.ListOptions) (runtime.Object, error) { return l, nil }
}

func listError(err error) func(metav1.ListOptions) (runtime.Object, error) {
	return func(metav1.ListOptions) (runtime.Object, error) { return nil, err }
}

// watches returns a script's answer to a watch: events, and the end if closed is true.
func watches(closed bool, events ...watch.Event) func(metav1.ListOptions) (watch.Interface, error) {
	return func(metav1.ListOptions) (watch.Interface, error) {
		w := watch.NewFakeWithChanSize(len(events), false)
		for _, e := range events {
			w.Action(e.Type, e.Object)
		}
		if closed {
			w.Stop()
		}
		return w, nil
	}
}

func watchError(err error) func(metav1.ListOptions) (watch.Interface, error) {
	return func(metav1.ListOptions) (watch.Interface, error) { return nil, err }
}

// typedBookmark is a bookmark as a typed client returns it.
func typedBookmark(rv int, endsList bool) watch.Event {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(rv)}}
	if endsList {
		p.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return watch.Event{Type: watch.Bookmark, Object: p}
}

func source(c cache.ListerWatcher, o reflector.ListWatchOptions) *reflector.ListWatch {
	if o.Encode == nil {
		o.Encode = encode
	}
	return reflector.NewListWatch(c, o)
}

// read makes a list and returns its items as key@resourceVersion.
func read(t *testing.T, s reflector.Source, opts upstream.ListOptions) (keys []string, rv string, err error) {
	t.Helper()
	rv, err = s.List(t.Context(), opts, func(o *object.Object) error {
		require.Equal(t, "Pod", o.Kind())
		require.Equal(t, "v1", o.APIVersion())
		keys = append(keys, o.Key()+"@"+o.GetResourceVersion())
		return nil
	})
	return keys, rv, err
}
