package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/agent/internal/sleep"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// verifyPage is how many objects are compared at a time: what is in memory.
	verifyPage = 500

	// verifyPause is how long a comparison in the background waits between two pages.
	verifyPause = time.Second

	// verifyLooks and verifyLooksBehind are how many keys that look different are asked
	// for a second, when somebody waits for it and in the background.
	verifyLooks       = 50
	verifyLooksBehind = 5

	// verifySuspects bounds the keys that are remembered because they look different. The
	// rest is found in another pass.
	verifySuspects = 1000

	// verifyRelist is how many objects must differ, besides being most of them, for a list
	// instead of fetching each; and how many of them are looked into to be sure.
	verifyRelist = 100
)

// errNotInStep says that a collection can't be compared at the moment.
var errNotInStep = errors.New("it is not in step with the server, so there is nothing to compare")

// pace is how fast a comparison goes.
type pace struct {
	pause time.Duration // between two pages
	looks *rate.Limiter // keys that are asked for by themselves
}

// verifications compares what is stored with the server, by schedule, until ctx ends.
func (a *Agent) verifications(ctx context.Context) {
	var every time.Duration
	var next time.Time // where every is not 0
	for {
		reloaded := a.nextReload()
		if d := a.config().Verify.Interval.Duration; d != every {
			// A time at random makes it once in an interval on average, however often the
			// agent is started, and spreads a fleet.
			if every = d; every != 0 {
				next = a.clock.Now().Add(rand.N(every)) //nolint:gosec // spreads load, guards nothing
			}
		}
		wait := config.MaxVerifyInterval // a reload ends it sooner
		if every != 0 {
			wait = next.Sub(a.clock.Now())
		}
		if sleep.UnlessWoken(ctx, a.clock, wait, reloaded) != nil {
			return
		}
		if every == 0 || a.clock.Now().Before(next) {
			continue
		}
		slow := pace{verifyPause, rate.NewLimiter(verifyLooksBehind, 1)}
		for _, c := range a.all() {
			verify(ctx, a.clock, c, slow, false, func(localapi.VerifyProgress) {})
		}
		next = a.clock.Now().Add(every + rand.N(every/10)) //nolint:gosec // as well
	}
}

// verify compares collections because somebody asked for it. One at a time does.
func (a *Agent) verify(ctx context.Context, q localapi.VerifyQuery, progress func(localapi.VerifyProgress), each func(localapi.Verification) error) error {
	for _, id := range q.Collections {
		if !slices.ContainsFunc(a.all(), func(c *collection.Collection) bool { return c.ID == id }) {
			return fmt.Errorf("%s: %w", id, localapi.ErrNoCollection)
		}
	}
	select {
	case a.verifying <- struct{}{}:
		defer func() { <-a.verifying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	fast := pace{0, rate.NewLimiter(verifyLooks, 1)}
	for _, c := range a.all() {
		if len(q.Collections) > 0 && !slices.Contains(q.Collections, c.ID) {
			continue
		}
		v := verify(ctx, a.clock, c, fast, q.Repair, progress)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := each(v); err != nil {
			return err
		}
	}
	return nil
}

// verify compares the collection with the server, notes what came of it, and returns it.
func verify(ctx context.Context, clock clock.Clock, c *collection.Collection, p pace, repair bool, progress func(localapi.VerifyProgress)) localapi.Verification {
	v := verifier{Collection: c, clock: clock, pace: p, repair: repair, progress: progress, lines: rate.NewLimiter(rate.Every(time.Minute/damageLines), damageLines)}
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
		c.Log.Info("there is nothing to compare with the server: the collection was never synced")
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
		log.Warn("what is stored could not be compared with the server", "error", err)
	case v.result.Left() > 0:
		log.Warn("what is stored differs from the server: snapcache verify --repair heals it", "repaired", v.result.Repaired)
	case v.result.Drift() > 0:
		log.Warn("what is stored differed from the server, and was healed", "repaired", v.result.Repaired, "relisted", v.result.Relisted)
	default:
		log.Info("what is stored is what the server has")
	}
	return v.result
}

// whyUnsynced is why there is no complete list, as far as that is known.
func whyUnsynced(c *collection.Collection) string {
	text := localapi.ErrNotSynced.Error()
	if problem := c.Tracker.Stats().Problem; problem != nil {
		text += ": " + c.Hint(problem)
	}
	return text
}

// verifier is one comparison of a collection with the server.
//
// The server's list and the store are both in the order of keys, so a page of the one is
// compared with a stretch of the other, and nothing else is in memory but keys that look
// different, a bounded number of them. What looks different is a suspicion: see drift.
type verifier struct {
	*collection.Collection
	clock    clock.Clock
	pace     pace
	repair   bool
	progress func(localapi.VerifyProgress)
	lines    *rate.Limiter // of the log
	result   localapi.Verification

	stored  store.Collection // as of the beginning
	source  *upstream.Source
	page    []upstream.Version
	after   string // the key up to which all is compared
	newest  string // the last key that the server sent
	total   int64  // about how many objects there are
	cluster string // whose the checkpoint was at the beginning

	suspects []string // the first of what looks different
	differ   int64    // how much does
}

func (v *verifier) run(ctx context.Context) error {
	v.stored, v.source, _, _ = v.Live()
	if v.stored == nil || !v.stored.State().Synced {
		return localapi.ErrNotSynced
	}
	if !v.Watching() {
		return errNotInStep
	}
	v.cluster, v.total = v.stored.State().Cluster, v.stored.State().Count
	for from, first := "", true; ; first = false {
		if err := v.pass(ctx, from); err != nil {
			return err
		}
		if first && v.differ >= verifyRelist && v.differ*2 > max(v.total, v.result.Objects) {
			most, err := v.most(ctx)
			if err != nil || most {
				return err
			}
		}
		for _, key := range v.suspects {
			if err := v.suspect(ctx, key); err != nil {
				return err
			}
		}
		if v.differ <= int64(len(v.suspects)) {
			return nil
		}
		from = v.suspects[len(v.suspects)-1] // there were more
	}
}

// pass compares all that comes after the key from.
func (v *verifier) pass(ctx context.Context, from string) error {
	v.after, v.newest, v.result.Objects, v.differ = from, "", 0, 0
	v.page, v.suspects = v.page[:0], nil
	err := v.source.Versions(ctx, upstream.VersionsOptions{
		PageSize: verifyPage,
		Between: func(remaining int64) error {
			v.total = max(v.total, v.result.Objects+remaining)
			v.tell()
			return sleep.For(ctx, v.clock, v.pace.pause)
		},
	}, func(x upstream.Version) error {
		if x.Key <= v.newest {
			return errors.New("the server's list is in no order")
		}
		v.newest = x.Key
		v.result.Objects++
		v.page = append(v.page, x)
		if len(v.page) < verifyPage {
			return nil
		}
		return v.compare(false)
	})
	if err != nil {
		return err
	}
	return v.compare(true)
}

// tell tells how far it is.
func (v *verifier) tell() {
	v.progress(localapi.VerifyProgress{Collection: v.ID, Done: v.result.Objects, Total: max(v.total, v.result.Objects)})
}

// compare compares the page with what is stored between the keys after and newest,
// and past that where the server's list has ended.
func (v *verifier) compare(ended bool) error {
	view, err := v.stored.View()
	if err != nil {
		return err
	}
	defer view.Close()
	i := 0
	for i < len(v.page) && v.page[i].Key <= v.after {
		i++
	}
	for h, err := range view.Headers("", v.after) {
		if errors.As(err, new(*store.CorruptionError)) {
			continue // that is known, and repaired in another place
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
		switch {
		case i == len(v.page) || v.page[i].Key != h.Key:
			v.looksDifferent(h.Key)
			continue
		case v.page[i].UID != h.UID || v.page[i].RV != h.RV:
			v.looksDifferent(h.Key)
		}
		i++
	}
	for ; i < len(v.page); i++ {
		v.looksDifferent(v.page[i].Key)
	}
	v.after, v.page = max(v.after, v.newest), v.page[:0]
	return nil
}

func (v *verifier) looksDifferent(key string) {
	v.differ++
	if len(v.suspects) < verifySuspects {
		v.suspects = append(v.suspects, key)
	}
}

// most says whether most of what looks different is, by a sample of it. Where it is
// to be repaired, the collection is listed then.
func (v *verifier) most(ctx context.Context) (bool, error) {
	every := len(v.suspects) / verifyRelist
	real, kinds := 0, map[collection.DriftKind]int64{}
	for i := range verifyRelist {
		kind, err := v.drift(ctx, v.suspects[i*every])
		if err != nil {
			return false, err
		}
		if kind != "" {
			real++
			kinds[kind]++
		}
	}
	if real*2 <= verifyRelist {
		v.result.Undecided = 0 // each is looked at again
		return false, nil
	}
	v.result.MostDiffer = true
	v.result.Missing, v.result.Extra, v.result.Stale = kinds[collection.DriftMissing], kinds[collection.DriftExtra], kinds[collection.DriftStale]
	for kind, n := range kinds {
		v.Tracker.Drifted(kind, n)
	}
	if !v.repair {
		return true, nil
	}
	return true, v.relistAll(ctx)
}

// drifted counts a difference that is real.
func (v *verifier) drifted(key string, kind collection.DriftKind) {
	switch kind {
	case collection.DriftMissing:
		v.result.Missing++
	case collection.DriftExtra:
		v.result.Extra++
	case collection.DriftStale:
		v.result.Stale++
	}
	v.Tracker.Drifted(kind, 1)
	if v.lines.Allow() {
		v.Log.Warn("what is stored of an object differs from the server", "key", key, "kind", string(kind))
	}
}

// relistAll lists the collection, and waits until that is stored.
func (v *verifier) relistAll(ctx context.Context) error {
	before := v.Tracker.Stats().Lists[store.ReasonVerifyFailed]
	v.Relist(store.ReasonVerifyFailed, fmt.Errorf("about %d of %d objects differ from the server's", v.differ, max(v.total, v.result.Objects)))
	for v.Tracker.Stats().Lists[store.ReasonVerifyFailed] == before || v.ListPending() {
		if err := sleep.For(ctx, v.clock, verifyLook); err != nil {
			return err
		}
	}
	v.result.Relisted = true
	return nil
}
