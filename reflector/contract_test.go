package reflector_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// Behaviour of client-go's Reflector that the other tests do not cover; docs/library-reflector.md
// has the whole table.

func TestLogger(t *testing.T) {
	var log bytes.Buffer
	play(t, &script{clusters: []string{"error: refused"}}, time.Minute, func(o *reflector.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	require.Regexp(t, `msg="waiting before the next try" wait=\S+ error="identify cluster: error: refused"`, log.String())
}

func TestLastSyncResourceVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{watches: []answer{
			{events: []watch.Event{event(watch.Modified, "a", 51)}, lasts: time.Minute},
			{events: []watch.Event{bookmark(60), event(watch.Deleted, "a", 61)}, lasts: time.Minute},
			{err: apierrors.NewResourceExpired("gone")},
		}}
		r := reflector.New(reflector.Options{Source: s, Queue: s, Checkpoint: store.Checkpoint{RV: "50"}})
		require.Equal(t, "50", r.LastSyncResourceVersion())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		for _, want := range []string{"51", "61", "100"} {
			synctest.Wait()
			require.Equal(t, want, r.LastSyncResourceVersion())
			time.Sleep(time.Minute + time.Second)
		}
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Empty(t, reflector.New(reflector.Options{Source: s, Queue: s}).LastSyncResourceVersion())
	})
}

// The events at the start of a watch without a resourceVersion are in no order: the next watch
// must not start from any of them.
func TestSyntheticEvents(t *testing.T) {
	s := &script{watches: []answer{
		{events: []watch.Event{event(watch.Added, "a", 70), event(watch.Added, "b", 60)}, lasts: time.Minute},
		{events: []watch.Event{event(watch.Added, "a", 70), event(watch.Added, "b", 60), bookmark(75), event(watch.Added, "c", 80)}, lasts: time.Minute},
	}}
	log := play(t, s, 10*time.Minute, func(o *reflector.Options) { o.Checkpoint.RV = "0" })
	require.Equal(t, 2, has(log, "watch 0"), "%q", log)
	require.Equal(t, "watch 80", log[len(log)-1])
}

func TestExpectedType(t *testing.T) {
	other, err := object.Parse([]byte(`{"kind":"Pod","apiVersion":"example.com/v1","metadata":{"name":"x","resourceVersion":"152"}}`))
	require.NoError(t, err)
	s := &script{listItems: []*object.Object{pod("a", 3), other}, watches: []answer{{events: []watch.Event{{Type: watch.Added, Object: other}}, open: true}}}
	var lines bytes.Buffer
	log := play(t, s, time.Minute, func(o *reflector.Options) {
		initial(o)
		o.APIVersion, o.Logger = "v1", slog.New(slog.NewTextHandler(&lines, nil))
	})
	skipped := `msg="skipped an object that can't be used" error="x: expected a v1 Pod, the server sent a example.com/v1 Pod"`
	require.Equal(t, 2, strings.Count(lines.String(), skipped), "%s", &lines)
	require.Equal(t, 1, has(log, "item"), "%q", log)
	require.Zero(t, has(log, "add"), "%q", log)
	require.Equal(t, []string{"skipped: x: expected a v1 Pod, the server sent a example.com/v1 Pod", "skip"}, log[len(log)-2:])
	require.Equal(t, 3, has(log, "skip"), "an item of a list is not an event")
}

func TestResync(t *testing.T) {
	asked := 0
	s := &script{watches: []answer{{err: errors.New("connection refused")}, {lasts: 30 * time.Minute}}}
	log := play(t, s, 61*time.Minute, func(o *reflector.Options) {
		o.ResyncPeriod = 10 * time.Minute
		o.ShouldResync = func() bool { asked++; return asked%2 == 0 }
	})
	require.Equal(t, 6, asked)
	require.Equal(t, 3, has(log, "resync"), "%q", log)
	require.Zero(t, has(log, "list"), "a resync makes no request")

	log = play(t, &script{}, 61*time.Minute, func(o *reflector.Options) { o.ResyncPeriod = 10 * time.Minute })
	require.Equal(t, 6, has(log, "resync"), "%q", log)
	log = play(t, &script{}, 61*time.Minute, nil)
	require.Zero(t, has(log, "resync"), "%q", log)

	s = &script{}
	for range 1000 {
		s.clusters = append(s.clusters, "error: refused")
	}
	log = play(t, s, 61*time.Minute, func(o *reflector.Options) { o.ResyncPeriod = 10 * time.Minute })
	require.Zero(t, has(log, "resync"), "no resync while the server is down")
}

// observedErrors is an observer of the errors that a wait or a list follows.
type observedErrors struct {
	reflector.NopObserver
	all []error
}

func (o *observedErrors) Phase(p reflector.Phase, err error) {
	if p == reflector.PhaseWaiting {
		o.all = append(o.all, err)
	}
}

func (o *observedErrors) Refused(_ store.Reason, why error) { o.all = append(o.all, why) }

func TestObservedErrors(t *testing.T) {
	s := &script{
		ends:  true,
		lists: []error{errors.New("list broke")},
		watches: []answer{
			{err: apierrors.NewUnauthorized("watch refused")}, {}, {lasts: full}, {lasts: time.Minute},
			{events: []watch.Event{status(http.StatusInternalServerError, metav1.StatusReasonInternalError)}},
			{err: apierrors.NewResourceExpired("too old")},
		},
	}
	seen := &observedErrors{}
	play(t, s, 2*time.Hour, func(o *reflector.Options) {
		initial(o)
		o.Observer = seen
	})
	require.Len(t, seen.all, 5, "%q", seen.all)
	for i, part := range []string{"list broke", "watch refused", "at once", "watch", "too old"} {
		require.ErrorContains(t, seen.all[i], part)
	}
	require.ErrorIs(t, seen.all[2], reflector.ErrShortWatch)
	require.True(t, apierrors.IsInternalError(seen.all[3]))
}

func TestMinWatchTimeout(t *testing.T) {
	for _, tc := range []struct{ least, from time.Duration }{{0, 5 * time.Minute}, {time.Minute, 5 * time.Minute}, {time.Hour, time.Hour}} {
		s := &script{ends: true}
		for range 50 {
			s.watches = append(s.watches, answer{lasts: full})
		}
		play(t, s, 200*time.Hour, func(o *reflector.Options) { o.MinWatchTimeout = tc.least })
		require.Len(t, s.asked, 51)
		for _, d := range s.asked {
			require.GreaterOrEqual(t, d, tc.from)
			require.Less(t, d, 2*tc.from)
		}
		require.NotEqual(t, s.asked[0], s.asked[1])
	}
}

// waits returns the time that a reflector waited before each request of an identity.
func waits(t *testing.T, s *script, lasts time.Duration, change func(*reflector.Options)) []time.Duration {
	var at []time.Time
	s.ends = true
	play(t, s, lasts, func(o *reflector.Options) {
		if change != nil {
			change(o)
		}
		identity := o.Identity
		o.Identity = func(ctx context.Context) (string, error) {
			at = append(at, time.Now())
			return identity(ctx)
		}
	})
	var d []time.Duration
	for i := range at[1:] {
		d = append(d, at[i+1].Sub(at[i]))
	}
	return d
}

func TestBackoffOption(t *testing.T) {
	refused := []string{"error", "error", "error", "error"}
	d := waits(t, &script{clusters: refused}, time.Hour, func(o *reflector.Options) {
		o.Backoff = &wait.Backoff{Duration: time.Second, Factor: 10, Steps: 4, Cap: time.Minute}
	})
	require.Equal(t, []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Minute}, d)

	d = waits(t, &script{clusters: refused}, time.Hour, nil)
	for i, least := range []time.Duration{800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond} {
		require.GreaterOrEqual(t, d[i], least)
		require.LessOrEqual(t, d[i], 2*least)
	}
}

// After two healthy minutes the backoff starts over, after less it does not.
func TestBackoffStartsOver(t *testing.T) {
	for _, tc := range []struct {
		healthy time.Duration
		over    bool
	}{{time.Minute, false}, {2 * time.Minute, true}} {
		s := &script{clusters: []string{"error", "error", "error", "error", "uid:1"}, watches: []answer{{lasts: tc.healthy}}}
		s.clusters = append(s.clusters, "error", "uid:1")
		d := waits(t, s, time.Hour, nil)
		require.Len(t, d, 6)
		require.Equal(t, tc.over, d[5] <= 1600*time.Millisecond, "%v after %v", d[5], tc.healthy)
	}
}

// A retry waits at least as long as the server's Retry-After.
func TestServerRetryAfter(t *testing.T) {
	s := &script{watches: []answer{{err: apierrors.NewTooManyRequests("later", 50)}}}
	d := waits(t, s, time.Hour, nil)
	require.Equal(t, []time.Duration{50 * time.Second}, d)
}

// An object that the queue can't take is skipped: neither a retry nor a list would change that.
func TestObjectRefusedByQueueIsSkipped(t *testing.T) {
	s := &script{refused: "a", watches: []answer{{events: []watch.Event{event(watch.Added, "a", 51), event(watch.Added, "b", 52)}, lasts: time.Minute}}}
	require.Equal(t, []string{"probe 50", "watch 50", "skipped: object can't be queued", "add b@52", "probe 52", "watch 52"}, play(t, s, 5*time.Minute, nil))
}

// A reflector stops at any point, and stops its open watch.
func TestStopAtAnyPoint(t *testing.T) {
	story := func() *script {
		return &script{
			listItems: []*object.Object{pod("a", 3)}, lists: []error{nil, errors.New("broke")},
			watches: []answer{
				{events: []watch.Event{event(watch.Added, "b", 101), bookmark(110)}, lasts: time.Minute}, {err: errors.New("refused")}, {},
				{events: []watch.Event{status(http.StatusGone, metav1.StatusReasonExpired)}},
			},
		}
	}
	whole := play(t, story(), time.Hour, initial)
	require.Greater(t, len(whole), 15)
	for n := 1; n <= len(whole); n++ {
		synctest.Test(t, func(t *testing.T) {
			s := story()
			ctx, cancel := context.WithCancel(t.Context())
			s.noted = func(length int) {
				if length == n {
					cancel()
				}
			}
			var stopped time.Time
			context.AfterFunc(ctx, func() { stopped = time.Now() })
			err := reflector.New(reflector.Options{Source: s, Queue: s, Identity: s.Identity, ResyncPeriod: time.Hour}).Run(ctx)
			require.ErrorIs(t, err, context.Canceled)
			synctest.Wait()
			require.Zero(t, time.Since(stopped))
			for _, w := range s.opened {
				require.True(t, w.IsStopped(), "after %q", s.log)
			}
		})
	}
}

func TestStopsWhileWaiting(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts reflector.Options
	}{
		{"jitter", reflector.Options{Jitter: 365 * 24 * time.Hour}},
		{"backoff", reflector.Options{Backoff: &wait.Backoff{Duration: time.Hour, Steps: 10}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{clusters: []string{"error"}}
				tc.opts.Source, tc.opts.Queue, tc.opts.Identity = s, s, s.Identity
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				require.ErrorIs(t, reflector.New(tc.opts).Run(ctx), context.DeadlineExceeded)
				require.Equal(t, time.Minute, time.Since(start))
			})
		})
	}
}
