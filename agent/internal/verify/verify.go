// Package verify compares the stored objects with the server's, on a timer and on request, and
// repairs differences.
package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// pageSize is how many objects are compared at a time; their versions are in memory.
	pageSize = 500

	// pagePause is how long a comparison in the background waits between two pages.
	pagePause = time.Second

	// requestsPerSecond and requestsInBackground limit the requests per second for keys that look
	// different, in a comparison on request and in the background.
	requestsPerSecond    = 50
	requestsInBackground = 5

	// maxSuspects bounds the keys that are remembered because they look different. The others are
	// undecided.
	maxSuspects = 1000

	// maxHealed is up to how many differing objects are fetched one by one. If more differ, the
	// comparison ends, and the collection is listed.
	maxHealed = 100
)

// errNotCaughtUp means that a collection can't be compared at the moment.
var errNotCaughtUp = errors.New("it is not " + localapi.CaughtUp + " with the server, so there is nothing to compare")

// pace is how fast a comparison goes.
type pace struct {
	pause    time.Duration // between two pages
	requests *rate.Limiter // of single keys
}

// Verifier compares collections with the server.
type Verifier struct {
	clock    clock.Clock
	all      func() []*collection.Collection
	interval func() (interval time.Duration, changed <-chan struct{})

	onRequest sync.Mutex // held by a comparison on request
}

// New returns a Verifier of the collections that all returns. interval returns verify.interval, 0 for none,
// and a channel that is closed when that may have changed.
func New(
	clock clock.Clock, all func() []*collection.Collection, interval func() (interval time.Duration, changed <-chan struct{}),
) *Verifier {
	return &Verifier{clock: clock, all: all, interval: interval}
}

// Run compares all collections by schedule until ctx ends.
func (v *Verifier) Run(ctx context.Context) {
	var every time.Duration
	var next time.Time // time of the next comparison; unset if every is 0
	for {
		interval, changed := v.interval()
		if interval != every {
			// A random start makes it one comparison in an interval on average, however often the
			// agent is restarted, and spreads a fleet.
			if every = interval; every != 0 {
				next = v.clock.Now().Add(rand.N(every)) //nolint:gosec // spreads load, guards nothing
			}
		}
		wait := config.MaxVerifyInterval // a reload ends it sooner
		if every != 0 {
			wait = next.Sub(v.clock.Now())
		}
		if sleep.UnlessWoken(ctx, v.clock, wait, changed) != nil {
			return
		}
		if every == 0 || v.clock.Now().Before(next) {
			continue
		}
		slow := pace{pagePause, rate.NewLimiter(requestsInBackground, 1)}
		for _, c := range v.all() {
			verify(ctx, v.clock, c, slow, false, func(localapi.VerifyProgress) {})
		}
		next = v.clock.Now().Add(every + rand.N(every/10)) //nolint:gosec // spreads load, guards nothing
	}
}

// Verify compares collections on request. Only one call at a time does: the others wait.
func (v *Verifier) Verify(ctx context.Context, q localapi.VerifyQuery, progress func(localapi.VerifyProgress), each func(localapi.Verification) error) error {
	for _, id := range q.Collections {
		if !slices.ContainsFunc(v.all(), func(c *collection.Collection) bool { return c.ID == id }) {
			return fmt.Errorf("%s: %w", id, store.ErrNoCollection)
		}
	}
	v.onRequest.Lock()
	defer v.onRequest.Unlock()
	fast := pace{0, rate.NewLimiter(requestsPerSecond, 1)}
	for _, c := range v.all() {
		if len(q.Collections) > 0 && !slices.Contains(q.Collections, c.ID) {
			continue
		}
		result := verify(ctx, v.clock, c, fast, q.Repair, progress)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := each(result); err != nil {
			return err
		}
	}
	return nil
}

// verify compares a collection with the server, and notes and returns the result.
func verify(ctx context.Context, clock clock.Clock, c *collection.Collection, p pace, repair bool, progress func(localapi.VerifyProgress)) localapi.Verification {
	v := comparison{Collection: c, clock: clock, pace: p, repair: repair, progress: progress}
	v.result.Collection = c.ID
	start := clock.Now()
	err := v.run(ctx)
	v.result.Time = clock.Now().UTC()
	v.result.Seconds = clock.Since(start).Seconds()
	if ctx.Err() != nil {
		return v.result
	}
	if errors.Is(err, localapi.ErrNotSynced) {
		v.result.Unsynced, v.result.Problem = true, whyUnsynced(c)
		c.Log.Info("nothing to compare with the server: never synced")
		return v.result
	}
	if err != nil {
		v.result.Problem = upstream.Describe(err)
	}
	c.Tracker.Verified(v.result)
	log := c.Log.With("objects", v.result.Objects, "missing", v.result.Missing, "extra", v.result.Extra, "stale", v.result.Stale,
		"undecided", v.result.Undecided, "took", clock.Since(start).Round(time.Millisecond))
	switch {
	case err != nil:
		log.Warn(localapi.NotCompared, "error", err)
	case v.result.Left() > 0:
		log.Warn("differs from the server: "+localapi.RepairFixes, "repaired", v.result.Repaired)
	case v.result.Drift() > 0:
		log.Warn("differed from the server, and was repaired", "repaired", v.result.Repaired, "relisted", v.result.Relisted)
	default:
		log.Info("verified: equal to the server")
	}
	return v.result
}

// whyUnsynced describes why there is no complete list, as far as that is known.
func whyUnsynced(c *collection.Collection) string {
	text := localapi.ErrNotSynced.Error()
	if problem := c.Tracker.Stats().Problem; problem != nil {
		text += ": " + c.Hint(problem)
	}
	return text
}

// comparison is one comparison of a collection with the server.
//
// The server's list and the store are both in the order of keys, so a page of the one is compared
// with a range of the other. Beyond these, only a bounded number of keys that look different is in
// memory. Such a key is only suspect: see drift.
type comparison struct {
	*collection.Collection
	clock    clock.Clock
	pace     pace
	repair   bool
	progress func(localapi.VerifyProgress)
	result   localapi.Verification

	stored  store.Collection // the collection at the beginning
	source  *upstream.Source
	page    []upstream.Version
	after   string // all keys up to this one have been compared
	newest  string // the last key that the server sent
	total   int64  // about how many objects there are
	cluster string // of the checkpoint at the beginning

	suspects []string // the first keys that look different
}

// run compares the collection, counts the objects that differ, and repairs them if that is
// requested.
func (v *comparison) run(ctx context.Context) error {
	live := v.Live()
	v.stored, v.source = live.Stored, live.Source
	if v.stored == nil || !v.stored.State().Synced {
		return localapi.ErrNotSynced
	}
	if !v.Watching() {
		return errNotCaughtUp
	}
	v.cluster, v.total = v.stored.State().Cluster, v.stored.State().Count
	if err := v.pass(ctx); err != nil {
		return err
	}
	if err := v.CheckDefinition(ctx); err != nil { // equal keys and versions may stand for other paths or forms
		return err
	}
	for _, key := range v.suspects {
		kind, err := v.drift(ctx, key)
		if err != nil {
			return err
		}
		if kind == "" {
			continue
		}
		v.drifted(key, kind)
		if v.result.Drift() > maxHealed {
			v.result.ManyDiffer = true
			if v.repair {
				return v.relistAll(ctx, fmt.Errorf("more than %d objects differ from the server's", maxHealed))
			}
			return nil
		}
		if !v.repair {
			continue
		}
		healed, err := v.heal(ctx, key)
		if err != nil {
			return err
		}
		if !healed {
			return v.relistAll(ctx, errors.New("an object differs from the server's, and the collection changes too fast to replace it alone"))
		}
		v.result.Repaired++
	}
	return nil
}

// pass compares all keys, and notes each that looks different.
func (v *comparison) pass(ctx context.Context) error {
	_, err := v.source.Versions(ctx, upstream.VersionsOptions{
		PageSize: pageSize,
		Between: func(remaining int64) error {
			v.total = max(v.total, v.result.Objects+remaining)
			v.report()
			return sleep.For(ctx, v.clock, v.pace.pause)
		},
	}, func(x upstream.Version) error {
		if x.Key <= v.newest {
			return errors.New("the server's list is in no order")
		}
		v.newest = x.Key
		v.result.Objects++
		v.page = append(v.page, x)
		if len(v.page) < pageSize {
			return nil
		}
		return v.compare(false)
	})
	if err != nil {
		return err
	}
	return v.compare(true)
}

// report reports how far the comparison is.
func (v *comparison) report() {
	v.progress(localapi.VerifyProgress{Collection: v.ID, Done: v.result.Objects, Total: max(v.total, v.result.Objects)})
}

// compare compares the page with the stored objects between the keys after and newest, and with all
// later ones if the server's list has ended.
func (v *comparison) compare(ended bool) error {
	view, err := v.stored.View()
	if err != nil {
		return err
	}
	defer view.Close()
	i := 0
	for h, err := range view.Headers("", v.after) {
		if errors.As(err, new(*store.CorruptionError)) {
			continue // package repair repairs it
		}
		if err != nil {
			return err
		}
		if !ended && h.Key > v.newest {
			break
		}
		for ; i < len(v.page) && v.page[i].Key < h.Key; i++ {
			v.looksDifferent(v.page[i].Key)
		}
		known := i < len(v.page) && v.page[i].Key == h.Key
		if !known || v.page[i].UID != h.UID || v.page[i].RV != h.RV {
			v.looksDifferent(h.Key)
		}
		if known {
			i++
		}
	}
	for ; i < len(v.page); i++ {
		v.looksDifferent(v.page[i].Key)
	}
	v.after, v.page = max(v.after, v.newest), v.page[:0]
	return nil
}

func (v *comparison) looksDifferent(key string) {
	if len(v.suspects) < maxSuspects {
		v.suspects = append(v.suspects, key)
	} else {
		v.result.Undecided++
	}
}

// drifted counts a confirmed difference.
func (v *comparison) drifted(key string, kind collection.DriftKind) {
	switch kind {
	case collection.DriftMissing:
		v.result.Missing++
	case collection.DriftExtra:
		v.result.Extra++
	case collection.DriftStale:
		v.result.Stale++
	}
	v.Tracker.Drifted(kind)
	v.Log.Warn("a stored object differs from the server", "key", key, "kind", string(kind))
}

// relistAll lists the collection, and waits until the list is stored.
func (v *comparison) relistAll(ctx context.Context, cause error) error {
	before := v.Tracker.Stats().Lists[store.ReasonVerifyFailed]
	v.Relist(store.ReasonVerifyFailed, cause)
	for v.Tracker.Stats().Lists[store.ReasonVerifyFailed] == before || v.ListPending() {
		if err := sleep.For(ctx, v.clock, pollEvery); err != nil {
			return err
		}
	}
	v.result.Relisted = true
	return nil
}
