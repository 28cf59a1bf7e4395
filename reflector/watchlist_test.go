package reflector_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/upstream"
)

func TestWatchList(t *testing.T) {
	stream := []watch.Event{
		{Type: watch.Added, Object: typed("a", 3)}, typedBookmark(5, false), {Type: watch.Added, Object: typed("b", 9)},
		typedBookmark(10, true), {Type: watch.Modified, Object: typed("a", 11)},
	}
	c := &client{watches: []func(metav1.ListOptions) (watch.Interface, error){watches(false, stream...)}}
	s := source(c, reflector.ListWatchOptions{WatchList: true})
	keys, rv, err := read(t, s, upstream.ListOptions{PageSize: 500})
	require.NoError(t, err)
	require.Equal(t, []string{"shop/a@3", "shop/b@9"}, keys)
	require.Equal(t, "10", rv)
	w, err := s.Watch(t.Context(), "10", time.Minute)
	require.NoError(t, err)
	defer w.Stop()
	e, _ := reflector.Next(w)
	require.Equal(t, "11", e.Object.(*object.Object).GetResourceVersion(), "the same stream continues")
	require.Equal(t, []string{`watch-list rv="" match=NotOlderThan`}, c.asked)
}

// Changes before the bookmark that ends the list are a part of the list.
func TestWatchListChanges(t *testing.T) {
	c := &client{watches: []func(metav1.ListOptions) (watch.Interface, error){watches(false,
		watch.Event{Type: watch.Added, Object: typed("a", 3)}, watch.Event{Type: watch.Added, Object: typed("b", 4)},
		watch.Event{Type: watch.Modified, Object: typed("a", 5)}, watch.Event{Type: watch.Deleted, Object: typed("b", 6)},
		watch.Event{Type: watch.Deleted, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "unusable"}}},
		typedBookmark(10, true),
	)}}
	var dropped []string
	encode := func(o runtime.Object) (*object.Object, error) {
		if o.(*corev1.Pod).Name == "unusable" {
			return nil, object.ErrInvalid
		}
		return encode(o)
	}
	keys, rv, err := read(t, source(c, reflector.ListWatchOptions{WatchList: true, Encode: encode}), upstream.ListOptions{
		Deleted: func(key string) { dropped = append(dropped, key) },
	})
	require.NoError(t, err)
	require.Equal(t, []string{"shop/a@3", "shop/b@4", "shop/a@5"}, keys)
	require.Equal(t, []string{"shop/b", "unusable"}, dropped)
	require.Equal(t, "10", rv)
}

// The watch of a watch-list continues as the watch, with the timeout of one.
func TestWatchListContinuesAsWatch(t *testing.T) {
	for _, least := range []time.Duration{0, 30 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var asked []time.Duration
			c := &client{watches: []func(metav1.ListOptions) (watch.Interface, error){
				func(o metav1.ListOptions) (watch.Interface, error) {
					require.NotNil(t, o.SendInitialEvents)
					asked = append(asked, time.Duration(*o.TimeoutSeconds)*time.Second)
					return watches(false, typedBookmark(9, true))(o)
				},
			}}
			q := deltafifo.New(deltafifo.Options{})
			defer q.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := reflector.New(reflector.Options{
				Queue: q, Source: source(c, reflector.ListWatchOptions{WatchList: true}), MinWatchTimeout: least,
			}).Run(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			least = max(least, 5*time.Minute)
			require.Len(t, asked, 1)
			require.GreaterOrEqual(t, asked[0], least)
			require.Less(t, asked[0], 2*least)
		})
	}
}

func TestWatchListFallsBack(t *testing.T) {
	gone := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError}
	a := watch.Event{Type: watch.Added, Object: typed("a", 3)}
	for _, tc := range []struct {
		name  string
		watch func(metav1.ListOptions) (watch.Interface, error)
		first bool // the first call of List makes the list
		again bool // the second call of List makes a watch-list
	}{
		{name: "refused", watch: watchError(apierrors.NewBadRequest("sendInitialEvents is forbidden")), first: true},
		{name: "throttled", watch: watchError(apierrors.NewTooManyRequests("later", 1)), again: true},
		{name: "broken", watch: watches(true, a)},
		{name: "error event", watch: watches(false, a, watch.Event{Type: watch.Error, Object: gone})},
		{name: "no list", watch: watches(false, a, watch.Event{Type: "ODD", Object: typed("a", 4)})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &client{watches: []func(metav1.ListOptions) (watch.Interface, error){tc.watch, watches(false, a, typedBookmark(9, true))}}
			s := source(c, reflector.ListWatchOptions{WatchList: true})
			_, rv, err := read(t, s, upstream.ListOptions{})
			if tc.first {
				require.NoError(t, err)
				require.Equal(t, "100", rv)
				return
			}
			require.Error(t, err)
			keys, rv, err := read(t, s, upstream.ListOptions{})
			require.NoError(t, err)
			if tc.again {
				require.Equal(t, "9", rv)
				require.Len(t, keys, 1)
				w, err := s.Watch(t.Context(), "9", time.Minute)
				require.NoError(t, err)
				w.Stop()
				return
			}
			require.Equal(t, "100", rv, "by pages")
			_, rv, err = read(t, s, upstream.ListOptions{})
			require.NoError(t, err)
			require.Equal(t, "9", rv, "the next list is a watch-list again")
			w, err := s.Watch(t.Context(), "8", time.Minute)
			require.NoError(t, err)
			w.Stop()
			require.Equal(t, `watch rv="8"`, c.asked[len(c.asked)-1], "a new watch from another resourceVersion")
		})
	}
}

// A stream that is kept for a watch that never comes stops with the context.
func TestWatchListEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := watch.NewFakeWithChanSize(1, false)
		e := typedBookmark(9, true)
		from.Action(e.Type, e.Object)
		c := &client{watches: []func(metav1.ListOptions) (watch.Interface, error){
			func(metav1.ListOptions) (watch.Interface, error) { return from, nil },
		}}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := source(c, reflector.ListWatchOptions{WatchList: true}).List(ctx, upstream.ListOptions{}, nil)
		require.NoError(t, err)
		cancel()
		synctest.Wait()
		require.True(t, from.IsStopped())
	})
}

// unable is a client that declares that it can't make a list by a watch.
type unable struct{ *client }

func TestWatchListUnsupported(t *testing.T) {
	c := &client{}
	_, _, err := read(t, source(unable{c}, reflector.ListWatchOptions{WatchList: true}), upstream.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{`list limit=0 rv="" match= continue=""`}, c.asked)
}
