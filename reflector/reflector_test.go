package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The server is a script, for answers that a real server does not give on demand; test/e2e runs the
// same reflector against a real one.

func pod(name string, rv int) *object.Object {
	o, err := object.Parse(fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"uid":"u-%s","resourceVersion":"%d"}}`, name, name, rv))
	if err != nil {
		panic(err)
	}
	return o
}

func bookmark(rv int) watch.Event {
	o, err := object.ParseBookmark(fmt.Appendf(nil, `{"kind":"Pod","metadata":{"resourceVersion":"%d"}}`, rv))
	if err != nil {
		panic(err)
	}
	return watch.Event{Type: watch.Bookmark, Object: o}
}

func event(t watch.EventType, name string, rv int) watch.Event {
	return watch.Event{Type: t, Object: pod(name, rv)}
}

func status(code int32, reason metav1.StatusReason) watch.Event {
	return watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}}
}

var pods = schema.GroupResource{Resource: "pods"}

// answer is the script's answer to one watch: an error, or events and then an end (at once, or
// after lasts).
type answer struct {
	err    error
	events []watch.Event
	lasts  time.Duration
	open   bool          // until the reflector stops it, which it does at the latest after ten minutes
	opens  time.Duration // how long it takes to begin
}

// script is a Source, a Queue and an Observer that returns the script's answers and records the
// reflector's calls.
type script struct {
	reflector.NopObserver
	mu        sync.Mutex
	log       []string
	watches   []answer
	probes    []error
	lists     []error
	clusters  []string
	listItems []*object.Object
	invalid   []string                     // keys of items of the list that can't be used; empty if not known
	replace   deltafifo.Replace            // the newest
	holds     int                          // objects of the consumer
	held      map[string]deltafifo.Version // some of those, by key
	missing   [][]string                   // the keys that each list lacks
	refusals  bool                         // Refused is recorded
	refused   string                       // key that the queue can't take
	asked     []time.Duration              // timeouts of watches
	opened    []*watch.FakeWatcher         // watches that were given out
	noted     func(n int)                  // called with the length of the log
	ends      bool                         // the script ends with its watches: another one does not begin
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf(format, args...))
	if s.noted != nil {
		s.noted(len(s.log))
	}
}

func take[T any](s *script, queue *[]T) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var zero T
	if len(*queue) == 0 {
		return zero, false
	}
	v := (*queue)[0]
	*queue = (*queue)[1:]
	return v, true
}

func (s *script) Identity(context.Context) (string, error) {
	if c, ok := take(s, &s.clusters); ok {
		if strings.HasPrefix(c, "error") {
			return "", errors.New(c)
		}
		return c, nil
	}
	return "uid:1", nil
}

func (s *script) Probe(_ context.Context, rv string) error {
	s.note("probe %s", rv)
	err, _ := take(s, &s.probes)
	return err
}

func (s *script) List(_ context.Context, opts upstream.ListOptions, each func(*object.Object) error) (string, error) {
	s.note("list page=%d", opts.PageSize)
	for _, o := range s.listItems {
		if err := each(o); err != nil {
			return "", err
		}
	}
	for _, key := range s.invalid {
		opts.Invalid(key, object.ErrInvalid)
	}
	if err, _ := take(s, &s.lists); err != nil {
		return "", err
	}
	return "100", nil
}

func (s *script) Watch(ctx context.Context, rv string, timeout time.Duration) (watch.Interface, error) {
	s.note("watch %s", rv)
	a, ok := take(s, &s.watches)
	s.asked = append(s.asked, timeout)
	if !ok && s.ends {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	a.open = a.open || !ok
	time.Sleep(a.opens)
	if a.err != nil {
		return nil, a.err
	}
	w := watch.NewFakeWithChanSize(len(a.events), false)
	s.opened = append(s.opened, w)
	for _, e := range a.events {
		w.Action(e.Type, e.Object)
	}
	switch {
	case a.open:
	case a.lasts == full:
		time.AfterFunc(timeout, w.Stop)
	case a.lasts > 0:
		time.AfterFunc(a.lasts, w.Stop)
	default:
		w.Stop()
	}
	return w, nil
}

// full is a watch that lasts until its timeout.
const full = time.Duration(1)

func (s *script) Add(o any) error    { return s.put("add", o) }
func (s *script) Update(o any) error { return s.put("update", o) }
func (s *script) Delete(o any) error { return s.put("delete", o) }
func (s *script) put(op string, o any) error {
	if o.(*object.Object).Key() == s.refused {
		return deltafifo.ErrUnusable
	}
	s.note("%s %s@%s", op, o.(*object.Object).Key(), o.(*object.Object).GetResourceVersion())
	return nil
}
func (s *script) Bookmark(rv string) error { s.note("bookmark %s", rv); return nil }
func (s *script) Flush()                   {}
func (s *script) Resync() error            { s.note("resync"); return nil }
func (s *script) BeginReplace(_ context.Context, r deltafifo.Replace) error {
	s.note("begin %s %s force=%v", r.Reason, r.Cluster, r.Force)
	s.replace = r
	return nil
}
func (s *script) ReplaceItem(o any) error {
	key, rv := o.(*object.Object).Key(), o.(*object.Object).GetResourceVersion()
	if held, ok := s.held[key]; ok && s.replace.Compare != nil {
		if err := s.replace.Compare(key, held, deltafifo.Version{UID: "u-" + key, RV: rv}); err != nil {
			return err
		}
	}
	return s.put("item", o)
}
func (s *script) EndReplace(rv string) error {
	if missing, ok := take(s, &s.missing); ok {
		if err := s.replace.Confirm(s.holds, missing); err != nil {
			return err
		}
	}
	s.note("end %s", rv)
	return nil
}
func (s *script) Skip() error {
	s.note("skip")
	return nil
}
func (s *script) AbortReplace()       { s.note("abort") }
func (s *script) KeepItem(key string) { s.note("keep %s", key) }
func (s *script) DropItem(key string) { s.note("drop %s", key) }
func (s *script) Skipped(err error)   { s.note("skipped: %v", err) }
func (s *script) Phase(_ reflector.Phase, err error) {
	if list, ok := errors.AsType[*reflector.MassDeleteError](err); ok {
		s.note("held back %d", list.Deletions)
	}
}
func (s *script) Refused(reason store.Reason, why error) {
	if s.refusals {
		s.note("refused %s: %v", reason, why)
	}
}

// play runs a reflector over the script for a (simulated) time and returns the record.
func play(t *testing.T, s *script, lasts time.Duration, change func(*reflector.Options)) []string {
	playAll(t, []*script{s}, lasts, change)
	return s.log
}

// playAll runs reflectors beside each other, one for each script.
func playAll(t *testing.T, scripts []*script, lasts time.Duration, change func(*reflector.Options)) {
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		for _, s := range scripts {
			all.Go(func() { s.play(t, lasts, change) })
		}
		all.Wait()
	})
}

// play runs a reflector over the script for a time, in a bubble.
func (s *script) play(t *testing.T, lasts time.Duration, change func(*reflector.Options)) {
	opts := reflector.Options{
		Source: s, Queue: s, Identity: s.Identity, Observer: s, Kind: "Pod",
		Checkpoint: store.Checkpoint{RV: "50", Cluster: "uid:1"},
	}
	if change != nil {
		change(&opts)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	assert.ErrorIs(t, reflector.New(opts).Run(ctx), context.DeadlineExceeded)
}

func has(log []string, prefix string) int {
	n := 0
	for _, l := range log {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

func initial(o *reflector.Options) { o.Checkpoint = store.Checkpoint{} }

// What is stored of an item that can't be used stays, if its key is known.
func TestListSkipsUnusableObjects(t *testing.T) {
	s := &script{listItems: []*object.Object{pod("a", 3)}, invalid: []string{"b", ""}}
	require.Equal(t, []string{
		"begin initial uid:1 force=false", "list page=500", "item a@3",
		"skipped: not a valid JSON object", "keep b", "skipped: not a valid JSON object", "end 100", "watch 100",
	}, play(t, s, time.Minute, initial))
}

func TestFirstSync(t *testing.T) {
	s := &script{listItems: []*object.Object{pod("a", 3)}}
	s.watches = []answer{{events: []watch.Event{event(watch.Added, "b", 101), event(watch.Deleted, "a", 102), bookmark(110)}, open: true}}
	require.Equal(t, []string{
		"begin initial uid:1 force=false", `list page=500`, "item a@3", "end 100",
		"watch 100", "add b@101", "delete a@102", "bookmark 110",
	}, play(t, s, time.Minute, initial))
}

func TestResumeMakesNoList(t *testing.T) {
	s := &script{watches: []answer{{events: []watch.Event{event(watch.Modified, "a", 51)}, open: true}}}
	require.Equal(t, []string{"probe 50", "watch 50", "update a@51"}, play(t, s, time.Minute, nil))
}

// No failure of the network or the server makes a list while the resourceVersion is valid
// (invariant 4).
func TestErrorsMakeNoList(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer answer
	}{
		{"refused", answer{err: errors.New("dial tcp: connection refused")}},
		{"unauthorized", answer{err: apierrors.NewUnauthorized("no")}},
		{"forbidden", answer{err: apierrors.NewForbidden(pods, "", nil)}},
		{"not found", answer{err: apierrors.NewNotFound(pods, "")}},
		{"too many", answer{err: apierrors.NewTooManyRequests("later", 3)}},
		{"internal", answer{err: apierrors.NewInternalError(errors.New("oops"))}},
		{"unavailable", answer{err: apierrors.NewServiceUnavailable("no")}},
		{"timeout", answer{err: apierrors.NewTimeoutError("slow", 1)}},
		{"server timeout", answer{err: apierrors.NewServerTimeout(pods, "watch", 1)}},
		{"error event 500", answer{events: []watch.Event{status(http.StatusInternalServerError, metav1.StatusReasonInternalError)}}},
		{"error event 429", answer{events: []watch.Event{status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)}}},
		{"connection lost", answer{events: []watch.Event{status(http.StatusInternalServerError, upstream.ReasonConnectionLost)}}},
		{"closed", answer{events: []watch.Event{event(watch.Modified, "a", 50)}}},
		{"closed late", answer{lasts: time.Minute}},
		{"in good order", answer{lasts: full}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &script{watches: slices.Repeat([]answer{tc.answer}, 6), ends: true}
			log := play(t, s, 2*time.Hour, nil)
			require.Zero(t, has(log, "begin"), "%q", log)
			require.Equal(t, 7, has(log, "watch 50"), "%q", log)
		})
	}
}

func TestExpired(t *testing.T) {
	gone := apierrors.NewResourceExpired("too old resource version: 50 (99)")
	for _, tc := range []struct {
		name   string
		script *script
	}{
		{"watch refused", &script{watches: []answer{{err: gone}}}},
		{"error event", &script{watches: []answer{{events: []watch.Event{status(http.StatusGone, metav1.StatusReasonExpired)}}}}},
		{"code only", &script{watches: []answer{{events: []watch.Event{status(http.StatusGone, metav1.StatusReasonGone)}}}}},
		{"at the probe", &script{probes: []error{gone}}},
		{"after an event", &script{watches: []answer{{events: []watch.Event{event(watch.Modified, "a", 51), status(http.StatusGone, metav1.StatusReasonExpired)}}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := play(t, tc.script, time.Minute, nil)
			require.Equal(t, []string{"begin expired uid:1 force=false", `list page=500`, "end 100", "watch 100"}, log[len(log)-4:])
		})
	}
}

func TestClusterChanged(t *testing.T) {
	s := &script{clusters: []string{"uid:2", "uid:2"}}
	require.Equal(t, []string{"begin cluster-changed uid:2 force=true", `list page=500`, "end 100", "watch 100"}, play(t, s, time.Minute, nil))
}

// A change of permissions changes the form of the identity, not the cluster.
func TestIdentityOfAnotherForm(t *testing.T) {
	s := &script{clusters: []string{"ca:abc"}}
	require.Equal(t, []string{"probe 50", "watch 50"}, play(t, s, time.Minute, nil))
}

// A checkpoint of another node needs an equal identity.
func TestForeignCheckpoint(t *testing.T) {
	elsewhere := func(o *reflector.Options) { o.ForeignCheckpoint = true }
	s := &script{clusters: []string{"ca:abc", "ca:abc"}}
	require.Equal(t, []string{"begin cluster-changed ca:abc force=true", `list page=500`, "end 100", "watch 100"}, play(t, s, time.Minute, elsewhere))
	require.Equal(t, []string{"probe 50", "watch 50"}, play(t, &script{}, time.Minute, elsewhere))
}

func TestRVAhead(t *testing.T) {
	ahead := fmt.Errorf("probe: %w", upstream.ErrAhead)
	t.Run("a server that is behind for a while", func(t *testing.T) {
		s := &script{probes: []error{ahead, ahead, nil}}
		require.Equal(t, []string{"probe 50", "probe 50", "probe 50", "watch 50"}, play(t, s, time.Minute, nil))
	})
	t.Run("a server that lags behind its cluster", func(t *testing.T) {
		lags := fmt.Errorf("probe: %w", upstream.ErrLags)
		s := &script{probes: []error{lags, lags, lags, lags, nil}}
		require.Equal(t, []string{"probe 50", "probe 50", "probe 50", "probe 50", "probe 50", "watch 50"}, play(t, s, 2*time.Minute, nil))
	})
	t.Run("a cluster that went back", func(t *testing.T) {
		s := &script{probes: []error{ahead, ahead, ahead}}
		require.Equal(t, []string{
			"probe 50", "probe 50", "probe 50", "begin rv-ahead uid:1 force=true", `list page=500`, "end 100", "watch 100",
		}, play(t, s, time.Minute, nil))
	})
}

func TestSilentClose(t *testing.T) {
	s := &script{watches: []answer{{}, {}}}
	log := play(t, s, time.Minute, nil)
	require.Equal(t, []string{
		"probe 50", "watch 50", "probe 50", "watch 50",
		"begin silent-close uid:1 force=false", `list page=500`, "end 100", "watch 100",
	}, log)
}

// A watch after a list that ends at once does not refuse a checkpoint.
func TestShortWatchesAfterAList(t *testing.T) {
	s := &script{watches: []answer{{}}}
	log := play(t, s, time.Minute, initial)
	require.Equal(t, 1, has(log, "begin"), "%q", log)
}

// After a watch that ends at its timeout the next follows at once; after one that ends early the
// guards run again, because the server may have been restored meanwhile.
func TestGuardsAfterAnEarlyEnd(t *testing.T) {
	s := &script{watches: []answer{{lasts: full}, {lasts: time.Minute}}, ends: true}
	require.Equal(t, []string{"probe 50", "watch 50", "watch 50", "probe 50", "watch 50"}, play(t, s, 15*time.Minute, nil))
}

func TestListExpiresBetweenPages(t *testing.T) {
	s := &script{lists: []error{apierrors.NewResourceExpired("continue token")}}
	require.Equal(t, []string{
		"begin initial uid:1 force=false", `list page=500`, "abort",
		"begin initial uid:1 force=false", `list page=0`, "end 100", "watch 100",
	}, play(t, s, time.Minute, initial))
}

// A list that fails is aborted and made again, for the same reason.
func TestListFails(t *testing.T) {
	s := &script{lists: []error{errors.New("unexpected EOF")}, clusters: []string{"error: refused"}}
	require.Equal(t, []string{
		"begin scope-changed uid:1 force=true", `list page=500`, "abort",
		"begin scope-changed uid:1 force=true", `list page=500`, "end 100", "watch 100",
	}, play(t, s, time.Minute, func(o *reflector.Options) { o.Reason = store.ReasonScopeChanged }))
}

func TestWatchSkipsUnusableObjects(t *testing.T) {
	node, err := object.Parse([]byte(`{"kind":"Node","metadata":{"name":"n","resourceVersion":"51"}}`))
	require.NoError(t, err)
	s := &script{watches: []answer{{events: []watch.Event{
		{Type: watch.Added, Object: node},
		{Type: watch.Added, Object: &upstream.InvalidObject{Err: object.ErrNoMetadata}},
		{Type: "ODD", Object: pod("a", 51)},
		event(watch.Added, "b", 52),
	}, open: true}}}
	log := play(t, s, time.Minute, nil)
	require.Equal(t, 3, has(log, "skipped"), "%q", log)
	require.Equal(t, "add b@52", log[len(log)-1])
}

// The waits grow to a maximum, so that an outage of hours costs one or two requests a minute.
func TestBackoff(t *testing.T) {
	s := &script{}
	for range 1000 {
		s.clusters = append(s.clusters, "error: connection refused")
	}
	play(t, s, time.Hour, nil)
	tries := 1000 - len(s.clusters)
	require.Less(t, tries, 130)
	require.Greater(t, tries, 50)
}

// A watch that a proxy holds, which passes nothing on and keeps it open, ends by the reflector's clock, and
// the next one begins where it was.
func TestHeldWatch(t *testing.T) {
	held := []answer{{events: []watch.Event{event(watch.Modified, "a", 51)}, open: true}, {open: true, opens: time.Minute}}
	s := &script{watches: held, ends: true}
	log := slices.DeleteFunc(play(t, s, time.Hour, nil), func(l string) bool { return strings.HasPrefix(l, "probe") })
	require.Equal(t, []string{"watch 50", "update a@51", "watch 51", "watch 51"}, log)
}

// An event or a bookmark from before the newest one is not applied. The next watch begins where it was.
func TestReplayedWatch(t *testing.T) {
	for _, typ := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
		replayed := answer{events: []watch.Event{event(watch.Modified, "a", 60), event(typ, "b", 59)}, open: true}
		s := &script{watches: []answer{replayed}, ends: true}
		log := slices.DeleteFunc(play(t, s, time.Hour, nil), func(l string) bool { return strings.HasPrefix(l, "probe") })
		require.Equal(t, []string{"watch 50", "update a@60", "watch 60"}, log, typ)
	}
}

// A watch for which another one is asked ends at once. The request is not for a later watch.
func TestRewatch(t *testing.T) {
	s, why := &script{watches: []answer{{open: true, opens: time.Minute}, {open: true}}}, fmt.Errorf("%w: x", upstream.ErrSilent)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		r := reflector.New(reflector.Options{Source: s, Queue: s, Observer: s, Checkpoint: store.Checkpoint{RV: "50"}})
		time.AfterFunc(time.Second, func() { r.Rewatch(why) }) // no watch is open yet
		time.AfterFunc(2*time.Minute, func() { r.Rewatch(why); r.Rewatch(why) })
		require.ErrorIs(t, r.Run(ctx), context.DeadlineExceeded)
	})
	require.Equal(t, []string{"probe 50", "watch 50", "probe 50", "probe 50", "watch 50"}, s.log)
}

// A server that asks for an hour is asked again after minutes, and at once when the bell rings: then the
// backoff starts over, too.
func TestRetryAfter(t *testing.T) {
	hour := apierrors.NewTooManyRequests("maintenance", 3600)
	for _, tc := range []struct {
		name string
		fail func(s *script, err error)
	}{
		{"watch", func(s *script, err error) { s.watches = slices.Repeat([]answer{{err: err}}, 100) }},
		{"watch event", func(s *script, _ error) {
			later := status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
			later.Object.(*metav1.Status).Details = &metav1.StatusDetails{RetryAfterSeconds: 3600}
			s.watches = slices.Repeat([]answer{{events: []watch.Event{later}}}, 100)
		}},
		{"probe", func(s *script, err error) { s.probes = slices.Repeat([]error{err}, 100) }},
		{"list", func(s *script, err error) { s.lists = slices.Repeat([]error{err}, 100) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, bell := &script{}, &sleep.Bell{}
			tc.fail(s, hour)
			var tries []time.Duration
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(sleep.WithBell(t.Context(), bell), 10*time.Minute)
				defer cancel()
				time.AfterFunc(7*time.Minute, bell.Ring)
				opts := reflector.Options{
					Source: s, Queue: s, Observer: s, Checkpoint: store.Checkpoint{RV: "50"},
					Identity: func(context.Context) (string, error) {
						tries = append(tries, time.Since(began))
						return "", nil
					},
				}
				if tc.name == "list" {
					opts.Checkpoint = store.Checkpoint{}
				}
				require.ErrorIs(t, reflector.New(opts).Run(ctx), context.DeadlineExceeded)
			})
			const minute = time.Minute
			require.Equal(t, []time.Duration{0, 2 * minute, 4 * minute, 6 * minute, 7 * minute, 9 * minute}, tries)
		})
	}
}

func TestJitterComesFirst(t *testing.T) {
	s := &script{}
	log := play(t, s, time.Hour, func(o *reflector.Options) { o.Jitter = 24 * 365 * time.Hour })
	require.Empty(t, log)
}
