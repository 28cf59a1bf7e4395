package informer_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// server is a resource's history with the API's rules for lists and watches, and
// with failures on demand. It is a cache.ListerWatcher.
type server struct {
	mu        sync.Mutex
	rv        int
	uid       int
	objects   map[string]*corev1.Pod
	events    []watch.Event // of resourceVersions 1, 2, …
	compacted int           // history up to here is gone
	lists     int           // requests for complete lists
	probes    int           // lists of one object, or at least as new as a checkpoint
	watches   []*serverWatch
	listErr   error
	watchErr  error
	sent      func(*corev1.Pod) // changes the sent objects; nil for none
}

type serverWatch struct {
	result chan watch.Event
	stop   chan struct{}
	end    func()
	next   int
	wake   chan struct{}
	extra  []watch.Event // sent before all other events
	close  bool
}

func newServer() *server { return &server{objects: map[string]*corev1.Pod{}} }

// IsWatchListSemanticsUnSupported prevents client-go's lists by watch.
func (s *server) IsWatchListSemanticsUnSupported() bool { return true }

func (s *server) List(opts metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), opts)
}

func (s *server) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), opts)
}

func (s *server) ListWithContext(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return nil, err
	}
	probe := opts.Limit == 1 || !one.Empty()
	if probe {
		s.probes++
	} else {
		s.lists++
	}
	if s.listErr != nil && !probe {
		return nil, s.listErr
	}
	if s.watchErr != nil && probe {
		return nil, s.watchErr
	}
	if rv, err := strconv.Atoi(opts.ResourceVersion); err == nil && rv > s.rv {
		behind := apierrors.NewTimeoutError("Too large resource version", 1)
		behind.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		return nil, behind
	}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.rv)}}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if p := s.objects[key]; !one.Matches(fields.Set{"metadata.name": p.Name, "metadata.namespace": p.Namespace}) {
			continue
		}
		list.Items = append(list.Items, *s.copy(s.objects[key]))
	}
	return list, nil
}

func (s *server) copy(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	if s.sent != nil {
		s.sent(p)
	}
	return p
}

func (s *server) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watchErr != nil {
		return nil, s.watchErr
	}
	from, err := strconv.Atoi(opts.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w := &serverWatch{result: make(chan watch.Event), stop: make(chan struct{}), wake: make(chan struct{}, 1), next: from}
	w.end = sync.OnceFunc(func() { close(w.stop) })
	if from < s.compacted {
		w.extra = []watch.Event{{Type: watch.Error, Object: status(410, metav1.StatusReasonExpired)}}
		w.close = true
	}
	s.watches = append(s.watches, w)
	go s.serve(ctx, w)
	return w, nil
}

func (w *serverWatch) ResultChan() <-chan watch.Event { return w.result }
func (w *serverWatch) Stop()                          { w.end() }

func (s *server) serve(ctx context.Context, w *serverWatch) {
	defer close(w.result)
	for {
		s.mu.Lock()
		var e *watch.Event
		switch {
		case len(w.extra) > 0:
			e, w.extra = &w.extra[0], w.extra[1:]
		case w.close:
			s.mu.Unlock()
			return
		case w.next < s.rv:
			next := s.events[w.next]
			if p, ok := next.Object.(*corev1.Pod); ok {
				next.Object = s.copy(p)
			}
			e = &next
			w.next++
		}
		s.mu.Unlock()
		var result chan watch.Event
		var send watch.Event
		if e != nil {
			result, send = w.result, *e
		}
		wake := w.wake
		if e != nil {
			wake = nil
		}
		select {
		case result <- send:
		case <-wake:
		case <-w.stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

func status(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason)}
}

// The caller of the methods below holds no lock.

func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	watches := s.watches // f may remove those that it ends
	f()
	for _, w := range watches {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// put creates or updates a pod.
func (s *server) put(name string) {
	s.change(func() {
		s.rv++
		old, exists := s.objects[name]
		p := pod("ns", name, "n"+strconv.Itoa(s.rv%3), s.rv)
		kind := watch.Modified
		if exists {
			p.UID = old.UID
		} else {
			kind = watch.Added
			s.uid++
			p.UID = types.UID(fmt.Sprintf("uid-%d", s.uid))
		}
		s.objects[name] = p
		s.events = append(s.events, watch.Event{Type: kind, Object: p})
	})
}

// remove deletes a pod, if it is there.
func (s *server) remove(name string) {
	s.change(func() {
		p, exists := s.objects[name]
		if !exists {
			return
		}
		s.rv++
		p = p.DeepCopy()
		p.ResourceVersion = strconv.Itoa(s.rv)
		delete(s.objects, name)
		s.events = append(s.events, watch.Event{Type: watch.Deleted, Object: p})
	})
}

// elsewhere increments the resourceVersion without a change to this resource.
func (s *server) elsewhere() {
	s.change(func() {
		s.rv++
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(s.rv)}}
		s.events = append(s.events, watch.Event{Type: watch.Bookmark, Object: p})
	})
}

// hangUp ends the open watches, after one last event if there is one.
func (s *server) hangUp(last ...watch.Event) {
	s.change(func() {
		for _, w := range s.watches {
			w.extra, w.close = append(w.extra, last...), true
		}
		s.watches = nil
	})
}

func (s *server) set(f func(*server)) { s.change(func() { f(s) }) }

// counts returns the number of requests for lists since the last call.
func (s *server) counts() (lists int) {
	s.change(func() { lists, s.lists = s.lists, 0 })
	return lists
}

// forget drops the watches that ended.
func (s *server) forget() { s.change(func() { s.watches = nil }) }
