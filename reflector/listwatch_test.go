package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

var coreScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}()

var encode = informer.NewCodec(&corev1.Pod{}, coreScheme).Encode

// encodeNothing is an encoder that can't work.
func encodeNothing(runtime.Object) (*object.Object, error) { return nil, errors.New("no scheme") }

func TestListWatchPages(t *testing.T) {
	c := &client{lists: []func(metav1.ListOptions) (runtime.Object, error){
		list(podList("10", "x", typed("a", 1), typed("b", 2))), list(podList("11", "", typed("c", 3))),
	}}
	var progress []string
	keys, rv, err := read(t, source(c, reflector.ListWatchOptions{}), upstream.ListOptions{
		PageSize: 2, Progress: func(n, left int64) { progress = append(progress, fmt.Sprint(n, " ", left)) },
	})
	require.NoError(t, err)
	require.Equal(t, []string{"shop/a@1", "shop/b@2", "shop/c@3"}, keys)
	require.Equal(t, "10", rv, "the oldest of the pages: a watch from there misses nothing")
	require.Equal(t, []string{"2 -1", "3 0"}, progress)
	require.Equal(t, []string{`list limit=2 rv="" match= continue=""`, `list limit=2 rv="" match= continue="x"`}, c.asked)
}

func TestListWatchLists(t *testing.T) {
	u := &unstructured.UnstructuredList{Object: map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "9"}}}
	raw := &unstructured.Unstructured{Object: map[string]any{"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"name": "a", "resourceVersion": "3"}}}
	u.Items = append(u.Items, *raw)
	keys, rv, err := read(t, source(&client{lists: []func(metav1.ListOptions) (runtime.Object, error){list(u)}}, reflector.ListWatchOptions{}), upstream.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, "9", rv)
	require.Equal(t, []string{"a@3"}, keys)

	table := &unstructured.UnstructuredList{Object: map[string]any{"kind": "Table", "apiVersion": "meta.k8s.io/v1"}}
	for _, tc := range []struct {
		name string
		list runtime.Object
	}{{"table", table}, {"no list", typed("a", 1)}, {"a token twice", podList("1", "x")}} {
		c := &client{lists: []func(metav1.ListOptions) (runtime.Object, error){list(tc.list), list(tc.list)}}
		_, _, err = read(t, source(c, reflector.ListWatchOptions{}), upstream.ListOptions{})
		require.ErrorIs(t, err, upstream.ErrBadList, tc.name)
	}
	failed := errors.New("the queue is closed")
	_, err = source(&client{lists: []func(metav1.ListOptions) (runtime.Object, error){list(u)}}, reflector.ListWatchOptions{}).
		List(t.Context(), upstream.ListOptions{}, func(*object.Object) error { return failed })
	require.ErrorIs(t, err, failed)
}

// One bad object is skipped; an encoder that always fails must not turn a full list into an empty
// one.
func TestListWatchSkips(t *testing.T) {
	var skipped []error
	o, how := reflector.ListWatchOptions{}, upstream.ListOptions{Invalid: func(_ string, err error) { skipped = append(skipped, err) }}
	answer := list(podList("9", "", typed("a", 1), typed("", 2), typed("c", 3)))
	keys, _, err := read(t, source(&client{lists: []func(metav1.ListOptions) (runtime.Object, error){answer}}, o), how)
	require.NoError(t, err)
	require.Equal(t, []string{"shop/a@1", "shop/c@3"}, keys)
	require.Len(t, skipped, 1)
	require.ErrorContains(t, skipped[0], "item 2")

	o.Encode = encodeNothing
	_, _, err = read(t, source(&client{lists: []func(metav1.ListOptions) (runtime.Object, error){answer}}, o), how)
	require.ErrorContains(t, err, "scheme")
	require.Len(t, skipped, 1)
}

func TestListWatchProbe(t *testing.T) {
	c := &client{lists: []func(metav1.ListOptions) (runtime.Object, error){
		list(podList("9", "")), list(podList("7", "")), list(podList("5", "")), list(podList("0", "")), list(podList("", "")),
		listError(apierrors.NewInternalError(errors.New("no"))), listError(apierrors.NewUnauthorized("no")),
	}}
	s := source(c, reflector.ListWatchOptions{})
	require.NoError(t, s.Probe(t.Context(), "7"))
	require.Equal(t, `list limit=1 rv="" match= continue=""`, c.asked[0], "the newest state, which a server that lags has too")
	require.NoError(t, s.Probe(t.Context(), "7"))
	require.ErrorIs(t, s.Probe(t.Context(), "7"), upstream.ErrAhead)
	require.NoError(t, s.Probe(t.Context(), "7"), "a list without a resourceVersion proves nothing")
	require.NoError(t, s.Probe(t.Context(), "7"))
	err := s.Probe(t.Context(), "7")
	require.True(t, apierrors.IsInternalError(err))
	require.NotErrorIs(t, err, upstream.ErrAhead)
	err = s.Probe(t.Context(), "7")
	require.True(t, apierrors.IsUnauthorized(err))
	require.NotErrorIs(t, err, upstream.ErrAhead)
	require.NoError(t, s.Probe(t.Context(), ""))
	require.Len(t, c.asked, 7, "no probe of a client that lists without a resourceVersion")
}

// The resourceVersions of a fake have no order, so a probe can't compare them.
func TestListWatchUnversioned(t *testing.T) {
	real := func(metav1.ListOptions) (watch.Interface, error) {
		return struct{ watch.Interface }{watch.NewFake()}, nil
	}
	for _, tc := range []struct {
		name  string
		rv    string // of the list
		watch func(metav1.ListOptions) (watch.Interface, error)
		want  bool
	}{
		{"a fake watch", "5", func(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }, true},
		{"a race-free fake watch", "5", func(metav1.ListOptions) (watch.Interface, error) { return watch.NewRaceFreeFake(), nil }, true},
		{"a list without resourceVersion", "", real, true},
		{"a list at 0", "0", real, true},
		{"a real one", "5", real, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &client{
				lists:   []func(metav1.ListOptions) (runtime.Object, error){list(podList(tc.rv, "")), list(podList("5", ""))},
				watches: []func(metav1.ListOptions) (watch.Interface, error){tc.watch},
			}
			s := source(c, reflector.ListWatchOptions{})
			_, _, err := read(t, s, upstream.ListOptions{})
			require.NoError(t, err)
			w, err := s.Watch(t.Context(), "5", time.Minute)
			require.NoError(t, err)
			defer w.Stop()
			require.Equal(t, tc.want, s.Unversioned())
			err = s.Probe(t.Context(), "7")
			require.Equal(t, !tc.want, errors.Is(err, upstream.ErrAhead))
		})
	}
}

// Version lists one object by its name; an answer with another object is none.
func TestListWatchVersion(t *testing.T) {
	var selector string
	answer := func(l *corev1.PodList, err error) func(metav1.ListOptions) (runtime.Object, error) {
		return func(o metav1.ListOptions) (runtime.Object, error) {
			selector = o.FieldSelector
			return l, err
		}
	}
	c := &client{lists: []func(metav1.ListOptions) (runtime.Object, error){
		answer(podList("9", "", typed("a", 5)), nil),
		answer(podList("9", "", typed("b", 5)), nil),
		answer(podList("9", ""), nil),
		answer(nil, errors.New("down")),
	}}
	s := source(c, reflector.ListWatchOptions{})
	key := typed("a", 5).Namespace + "/a"
	now, err := s.Current(t.Context(), key, "3")
	require.NoError(t, err)
	require.Equal(t, upstream.Current{Exists: true, UID: string(typed("a", 5).UID), RV: "5", ListRV: "9"}, now)
	require.Equal(t, "metadata.name=a,metadata.namespace="+typed("a", 5).Namespace, selector)
	require.Equal(t, `list limit=1 rv="" match= continue=""`, c.asked[0], "the newest state")
	for range 2 {
		now, err = s.Current(t.Context(), key, "")
		require.NoError(t, err)
		require.Equal(t, upstream.Current{ListRV: "9"}, now)
	}
	_, err = s.Current(t.Context(), key, "")
	require.ErrorContains(t, err, "down")
	now, err = s.Current(t.Context(), "cluster-scoped", "")
	require.NoError(t, err)
	require.Equal(t, upstream.Current{ListRV: "100"}, now)
	_, err = s.Current(t.Context(), "a/b/c", "")
	require.Error(t, err)
}

func TestListWatchEvents(t *testing.T) {
	st := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}
	c := &client{watches: []func(metav1.ListOptions) (watch.Interface, error){watches(true,
		watch.Event{Type: watch.Added, Object: typed("a", 11)}, watch.Event{Type: watch.Modified, Object: typed("a", 12)},
		watch.Event{Type: watch.Deleted, Object: typed("a", 13)}, typedBookmark(20, false), watch.Event{Type: watch.Added, Object: typed("", 21)},
		watch.Event{Type: watch.Error, Object: st},
	)}}
	w, err := source(c, reflector.ListWatchOptions{}).Watch(t.Context(), "10", time.Minute)
	require.NoError(t, err)
	defer w.Stop()
	var got []string
	for e, ok := reflector.Next(w); ok; e, ok = reflector.Next(w) {
		switch o := e.Object.(type) {
		case *object.Object:
			got = append(got, fmt.Sprint(e.Type, " ", o.Key(), "@", o.GetResourceVersion()))
		default:
			got = append(got, fmt.Sprintf("%s %T", e.Type, o))
		}
	}
	require.Equal(t, []string{
		"ADDED shop/a@11", "MODIFIED shop/a@12", "DELETED shop/a@13", "BOOKMARK @20", "ADDED *upstream.InvalidObject", "ERROR *v1.Status",
	}, got)
	require.Equal(t, []string{`watch rv="10"`}, c.asked)
}

// An encoder that always fails ends the watch: to skip all events would look like a cluster without
// changes.
func TestListWatchEncoderFails(t *testing.T) {
	c := &client{watches: []func(metav1.ListOptions) (watch.Interface, error){watches(false, watch.Event{Type: watch.Added, Object: typed("a", 11)})}}
	w, err := source(c, reflector.ListWatchOptions{Encode: encodeNothing}).Watch(t.Context(), "10", time.Minute)
	require.NoError(t, err)
	defer w.Stop()
	e, _ := reflector.Next(w)
	require.Equal(t, watch.Error, e.Type)
	require.ErrorContains(t, apierrors.FromObject(e.Object), "scheme")

	from := watch.NewFakeWithChanSize(2, false)
	from.Add(typed("a", 51))
	from.Add(typed("b", 52))
	c = &client{watches: []func(metav1.ListOptions) (watch.Interface, error){
		func(metav1.ListOptions) (watch.Interface, error) { return from, nil },
	}}
	log := play(t, &script{}, time.Minute, func(o *reflector.Options) {
		o.Source, o.Identity = source(c, reflector.ListWatchOptions{Encode: encodeNothing}), nil
	})
	require.Empty(t, log)
	require.True(t, from.IsStopped())
	require.Len(t, from.ResultChan(), 1, "no event after the one that can't be encoded is read")
	require.Equal(t, `watch rv="50"`, c.asked[len(c.asked)-1])
}

// rest.Request.Watch hides a connection that ended before the answer.
func TestListWatchHiddenEOF(t *testing.T) {
	c := &client{watches: []func(metav1.ListOptions) (watch.Interface, error){
		func(metav1.ListOptions) (watch.Interface, error) { return watch.NewEmptyWatch(), nil },
	}}
	_, err := source(c, reflector.ListWatchOptions{}).Watch(t.Context(), "10", time.Minute)
	require.ErrorContains(t, err, "EOF")
}

// stopOnce is a client's watch that can be stopped once only, as one that closes a channel.
type stopOnce struct {
	watch.Interface
	stopped chan struct{}
}

func (s stopOnce) Stop() { close(s.stopped) }

// A stop stops the client's watch, once.
func TestListWatchStop(t *testing.T) {
	from := stopOnce{watch.NewFake(), make(chan struct{})}
	c := &client{watches: []func(metav1.ListOptions) (watch.Interface, error){
		func(metav1.ListOptions) (watch.Interface, error) { return from, nil },
	}}
	w, err := source(c, reflector.ListWatchOptions{}).Watch(t.Context(), "10", time.Minute)
	require.NoError(t, err)
	w.Stop()
	w.Stop()
	<-from.stopped
}

// blocked is a client without contexts whose answers block until the test releases them.
type blocked struct {
	client
	answer chan struct{}
}

func (b *blocked) List(metav1.ListOptions) (runtime.Object, error) {
	<-b.answer
	return podList("1", ""), nil
}

func (b *blocked) Watch(o metav1.ListOptions) (watch.Interface, error) {
	<-b.answer
	return b.client.Watch(o)
}

func TestListWatchIgnoresContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := watch.NewFake()
		b := &blocked{answer: make(chan struct{})}
		b.watches = []func(metav1.ListOptions) (watch.Interface, error){func(metav1.ListOptions) (watch.Interface, error) { return from, nil }}
		s := source(b, reflector.ListWatchOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.List(ctx, upstream.ListOptions{}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = s.Watch(ctx, "1", time.Minute)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(b.answer)
		synctest.Wait()
		require.True(t, from.IsStopped(), "a watch that comes too late is stopped")
	})
}

// withContext is a client with contexts.
type withContext struct {
	client
	ctx context.Context
}

func (c *withContext) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	c.ctx = ctx
	return c.List(o)
}

func (c *withContext) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	c.ctx = ctx
	return c.Watch(o)
}

func TestListWatchPassesContext(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "here")
	c := &withContext{}
	s := source(c, reflector.ListWatchOptions{})
	_, err := s.List(ctx, upstream.ListOptions{}, nil)
	require.NoError(t, err)
	require.Equal(t, "here", c.ctx.Value(key{}))
	c.ctx = nil
	w, err := s.Watch(ctx, "1", time.Minute)
	require.NoError(t, err)
	w.Stop()
	require.Equal(t, "here", c.ctx.Value(key{}))
}

func (unable) IsWatchListSemanticsUnSupported() bool { return true }

// The reflector over a client: list, watch, an expired watch, a relist.
func TestReflectorOverListWatch(t *testing.T) {
	c := &client{
		lists: []func(metav1.ListOptions) (runtime.Object, error){list(podList("10", "", typed("a", 3))), list(podList("20", "", typed("b", 15)))},
		watches: []func(metav1.ListOptions) (watch.Interface, error){
			watches(false, watch.Event{Type: watch.Added, Object: typed("b", 11)}, status(http.StatusGone, metav1.StatusReasonExpired)),
		},
	}
	s := &script{}
	log := play(t, s, time.Minute, func(o *reflector.Options) {
		o.Checkpoint, o.Source, o.Identity = store.Checkpoint{}, source(c, reflector.ListWatchOptions{}), nil
	})
	require.Equal(t, []string{
		"begin initial  force=false", "item shop/a@3", "end 10", "add shop/b@11",
		"begin expired  force=false", "item shop/b@15", "end 20",
	}, log)
	require.Equal(t, []string{
		`list limit=500 rv="" match= continue=""`, `watch rv="10"`, `list limit=500 rv="" match= continue=""`, `watch rv="20"`,
	}, c.asked)
}
