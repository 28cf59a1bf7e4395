package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/reflector"
)

// step is one event on the server: a change of an object, or a compaction of the history.
type step struct {
	after time.Duration
	name  string
	what  string // "put", "delete", "recreate", "compact", "outage"
}

// fault is a failure of one answer of the server; the zero value is none.
type fault struct {
	kind  string // "refused", "429", "500", "eof"; for a watch also "close", "410", "bookmark"
	after int    // events of the watch before the fault
}

// world is a fake server with a history, which runs a script of changes and faults.
type world struct {
	mu      sync.Mutex
	rv      int
	uids    int
	memory  int // the oldest resourceVersion that a watch may start from
	objects map[string]*metav1.PartialObjectMetadata
	history []watch.Event
	lists   []fault
	watches []fault
	open    []*feed
}

func newWorld(lists, watches []fault) *world {
	return &world{rv: 10, memory: 10, objects: map[string]*metav1.PartialObjectMetadata{}, lists: lists, watches: watches}
}

func (w *world) play(steps []step) {
	for _, s := range steps {
		time.Sleep(s.after)
		w.mu.Lock()
		old := w.objects[s.name]
		switch {
		case s.what == "compact":
			w.forget()
		case s.what == "outage":
			// Watches end, and the server compacts what changes meanwhile.
			for _, f := range w.open {
				f.Stop()
			}
			if old != nil {
				w.change(watch.Deleted, s.name, old)
			}
			w.forget()
		case s.what == "delete" && old != nil:
			w.change(watch.Deleted, s.name, old)
		case s.what == "recreate" && old != nil:
			w.change(watch.Deleted, s.name, old)
			w.change(watch.Added, s.name, nil)
		case old == nil:
			w.change(watch.Added, s.name, nil)
		default:
			w.change(watch.Modified, s.name, old)
		}
		w.mu.Unlock()
	}
}

// forget compacts the server's history. The caller holds the lock.
func (w *world) forget() {
	w.rv++
	w.memory = w.rv
}

// change makes one event. The caller holds the lock.
func (w *world) change(t watch.EventType, name string, old *metav1.PartialObjectMetadata) {
	w.rv++
	o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "Thing", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	if old != nil {
		o = old.DeepCopy()
	} else {
		w.uids++
		o.UID = types.UID(strconv.Itoa(w.uids))
	}
	o.ResourceVersion = strconv.Itoa(w.rv)
	if t == watch.Deleted {
		delete(w.objects, name)
	} else {
		w.objects[name] = o
	}
	e := watch.Event{Type: t, Object: o}
	w.history = append(w.history, e)
	for _, f := range w.open {
		f.send(e)
	}
}

func failure(kind string) error {
	switch kind {
	case "refused":
		return fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	case "429":
		return apierrors.NewTooManyRequests("later", 1)
	case "500":
		return apierrors.NewInternalError(errors.New("oops"))
	case "eof":
		return io.ErrUnexpectedEOF
	}
	return nil
}

func next(faults *[]fault) (f fault) {
	if len(*faults) > 0 {
		f, *faults = (*faults)[0], (*faults)[1:]
	}
	return f
}

func (w *world) List(o metav1.ListOptions) (runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Limit != 1 { // a probe takes no fault of the script's lists
		if err := failure(next(&w.lists).kind); err != nil {
			return nil, err
		}
	}
	l := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(w.rv)}}
	for _, o := range w.objects {
		l.Items = append(l.Items, *o)
	}
	return l, nil
}

func (w *world) Watch(o metav1.ListOptions) (watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := next(&w.watches)
	if err := failure(f.kind); err != nil {
		return nil, err
	}
	from, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if from < w.memory {
		return nil, apierrors.NewResourceExpired("too old")
	}
	out := &feed{events: make(chan watch.Event, 1000), fault: f}
	for _, e := range w.history {
		if rv, _ := meta.NewAccessor().ResourceVersion(e.Object); rv != "" {
			if n, _ := strconv.Atoi(rv); n > from {
				out.send(e)
			}
		}
	}
	if f.kind == "bookmark" {
		out.send(watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{Kind: "Thing", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(w.rv)},
		}})
	}
	time.AfterFunc(time.Duration(*o.TimeoutSeconds)*time.Second, out.Stop)
	w.open = append(w.open, out)
	return out, nil
}

func (w *world) IsWatchListSemanticsUnSupported() bool { return true }

// feed is one watch of a world.
type feed struct {
	mu     sync.Mutex
	events chan watch.Event
	fault  fault
	sent   int
	ended  bool
}

func (f *feed) ResultChan() <-chan watch.Event { return f.events }

func (f *feed) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end()
}

func (f *feed) end() {
	if !f.ended {
		f.ended = true
		close(f.events)
	}
}

// send delivers an event, or the watch's fault in its place.
func (f *feed) send(e watch.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	if f.sent++; f.sent > f.fault.after {
		switch f.fault.kind {
		case "close":
			f.end()
			return
		case "410":
			f.events <- watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}}
			f.end()
			return
		}
	}
	f.events <- e
}

// content returns the content of a store: name → UID and resourceVersion.
func content(t require.TestingT, s cache.Store) map[string]string {
	m := map[string]string{}
	for _, obj := range s.List() {
		a, err := meta.Accessor(obj)
		require.NoError(t, err)
		m[a.GetName()] = string(a.GetUID()) + "@" + a.GetResourceVersion()
	}
	return m
}

// theirs runs client-go's Reflector into a store.
func theirs(ctx context.Context, w *world, s cache.Store) {
	cache.NewReflectorWithOptions(w, &metav1.PartialObjectMetadata{}, s, cache.ReflectorOptions{Name: "theirs"}).RunWithContext(ctx)
}

// ours runs a Reflector through a DeltaFIFO into a store.
func ours(ctx context.Context, w *world, s cache.Store) {
	q := deltafifo.NewDeltaFIFO(deltafifo.Options{KnownObjects: deltafifo.KnownStore(s)})
	var consumer sync.WaitGroup
	consumer.Go(func() {
		for {
			_, err := q.Pop(func(obj any, _ bool) error {
				d := obj.(cache.Deltas).Newest()
				if d.Type == cache.Deleted {
					return s.Delete(d.Object)
				}
				return s.Update(d.Object)
			})
			if errors.Is(err, cache.ErrFIFOClosed) {
				return
			}
		}
	})
	source := reflector.NewListWatch(w, reflector.ListWatchOptions{Encode: encode})
	_ = reflector.New(reflector.Options{Source: source, Queue: q, Kind: "Thing"}).Run(ctx)
	q.Close()
	consumer.Wait()
}

// TestBesideClientGo plays one script of changes, errors, closed watches, expired
// resourceVersions and bookmarks to client-go's Reflector and to ours. Both end
// with what the server has.
func TestBesideClientGo(t *testing.T) {
	// One of the handlers spaces errors by sleeping, with a clock that all tests share.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	rapid.Check(t, func(rt *rapid.T) {
		seconds := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 5, 60, 400}).Draw(t, "after")) * time.Second
		})
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{
				after: seconds.Draw(t, "after"), name: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name"),
				what: rapid.SampledFrom([]string{"put", "put", "put", "delete", "recreate", "compact", "outage"}).Draw(t, "what"),
			}
		}), 10, 60).Draw(rt, "steps")
		faults := func(kinds ...string) []fault {
			return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fault {
				return fault{kind: rapid.SampledFrom(kinds).Draw(t, "kind"), after: rapid.IntRange(0, 3).Draw(t, "events")}
			}), 0, 8).Draw(rt, "faults")
		}
		lists := faults("refused", "429", "500", "eof", "")
		watches := faults("refused", "429", "500", "eof", "close", "close", "410", "bookmark", "")

		type result struct{ server, store map[string]string }
		results := map[string]result{}
		for _, c := range []struct {
			name string
			run  func(context.Context, *world, cache.Store)
		}{{"ours", ours}, {"theirs", theirs}} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(append([]fault(nil), lists...), append([]fault(nil), watches...))
				s := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); c.run(ctx, w, s) }()
				w.play(steps)
				time.Sleep(3 * time.Hour) // simulated: every fault has passed
				synctest.Wait()
				server := map[string]string{}
				for name, o := range w.objects {
					server[name] = string(o.UID) + "@" + o.ResourceVersion
				}
				results[c.name] = result{server, content(t, s)}
				cancel()
				<-done
			})
		}
		require.Equal(rt, results["theirs"].server, results["ours"].server, "the state of the two servers")
		require.Equal(rt, results["theirs"].server, results["theirs"].store, "client-go's store")
		require.Equal(rt, results["theirs"].store, results["ours"].store, "our store beside client-go's")
	})
}
