package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

const (
	defaultPageSize = 500

	// backoffReset is the time without a wait after which the waits start over.
	backoffReset = 2 * time.Minute

	// aheadTries is how many times in a row the server must be behind the checkpoint before the
	// checkpoint is refused: a single time may be the lag of one server of several.
	aheadTries = 3

	// A resumed watch that ends this soon without an event, this often in a row, counts as
	// refused.
	silentClose = 2 * time.Second
	silentTries = 2
)

// Reflector fills a queue from a source. Run it once.
type Reflector struct {
	opts           Options
	backoff        wait.Backoff
	paused         time.Time        // when the newest pause ended
	resync         <-chan time.Time // nil if there are no resyncs
	relistRequests chan *RelistError

	rewatchRequests chan error // why the open watch has to end

	lastRV atomic.Pointer[string] // rv, for other goroutines

	rv          string       // newest resourceVersion that was queued
	cluster     string       // the identity of the cluster that rv belongs to
	schema      string       // of the objects of the newest list; empty if not known
	reason      store.Reason // why the next step is a list; empty if it is not
	ordered     bool         // events come in resourceVersion order; initial events do not
	validated   bool         // the guards passed since the newest outage
	validatedAt time.Time    // when the server was last known to have the checkpoint's history
	resumed     bool         // no event came since the guards passed
	ahead       int          // probes in a row that found the server behind rv
	silent      int          // silent closes in a row

	versionFailures int // lists in a row that could not list only what has changed

	unspread error // the 410 that the next list follows, after a wait; nil for none

	suspectDeletes sets.Set[string] // keys that the newest held-back list would have deleted
}

// New returns a reflector that has not started.
func New(opts Options) *Reflector {
	if opts.PageSize <= 0 {
		opts.PageSize = defaultPageSize
	}
	opts.Clock = cmp.Or[clock.WithTicker](opts.Clock, clock.RealClock{})
	opts.Observer = cmp.Or[Observer](opts.Observer, nopObserver{})
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	// The same waits as in client-go's reflector.
	opts.Backoff = cmp.Or(opts.Backoff, new(sleep.Backoff(800*time.Millisecond, 30*time.Second, 1)))
	if opts.Identity == nil {
		opts.Identity = func(context.Context) (string, error) { return opts.Checkpoint.Cluster, nil }
	}
	if opts.Schema == nil {
		opts.Schema = func(context.Context) (string, error) { return "", nil }
	}
	r := &Reflector{
		opts: opts, backoff: *opts.Backoff, relistRequests: make(chan *RelistError, 1), rewatchRequests: make(chan error, 1),
		cluster: opts.Checkpoint.Cluster, schema: opts.Checkpoint.Schema, reason: opts.Reason,
	}
	r.reached(opts.Checkpoint.RV)
	if r.rv == "" && r.reason == "" {
		r.reason = store.ReasonInitial
	}
	return r
}

// LastSyncResourceVersion returns the resourceVersion of the newest list or event that was queued,
// empty before the first list. It may be called at any time.
func (r *Reflector) LastSyncResourceVersion() string { return *r.lastRV.Load() }

func (r *Reflector) reached(rv string) {
	r.rv = rv
	r.lastRV.Store(&rv)
}

// Run lists, watches and resumes until ctx ends. It returns only then, or with deltafifo.ErrClosed
// if the queue was closed.
func (r *Reflector) Run(ctx context.Context) error {
	r.opts.Observer.Phase(PhaseStarting, nil)
	if r.opts.ResyncPeriod > 0 {
		ticker := r.opts.Clock.NewTicker(r.opts.ResyncPeriod)
		defer ticker.Stop()
		r.resync = ticker.C()
	}
	if r.opts.Jitter > 0 {
		_ = sleep.For(ctx, r.opts.Clock, rand.N(r.opts.Jitter)) //nolint:gosec // spreads load, guards nothing
	}
	for ctx.Err() == nil {
		step := r.watch
		switch {
		case r.reason != "":
			r.spread(ctx)
			step = r.list
		case !r.validated:
			step = r.resume
		}
		err := step(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, deltafifo.ErrClosed):
			return err
		case err != nil:
			r.pause(ctx, err)
		}
	}
	return ctx.Err()
}

func (r *Reflector) relist(reason store.Reason, why error) {
	r.reason = reason
	switch reason {
	case store.ReasonRVAhead:
		r.opts.Member.prove(why)
	case store.ReasonExpired:
		r.unspread = why
	}
	r.opts.Logger.Warn("relist needed", "reason", reason, "rv", r.rv, "error", why)
	r.opts.Observer.Refused(reason, why)
}

// relistFor makes the next step a list and returns nil if err is or wraps a [*RelistError]. It
// returns any other error.
func (r *Reflector) relistFor(err error) error {
	refused := asRelist(err)
	if refused == nil {
		return err
	}
	r.relist(refused.Reason, refused.Err)
	return nil
}

// Relist ends the watch, now or once one is open, and makes the next step a list, for a reason that
// was found outside the reflector. It may be called at any time, and does not block.
func (r *Reflector) Relist(reason store.Reason, why error) {
	select {
	case r.relistRequests <- &RelistError{Reason: reason, Err: why}:
	default: // one request is pending already
	}
}

// Rewatch ends the watch, if one is open, and begins another one where it was. It may be called at any
// time, and does not block. err, which is the reason, should wrap [upstream.ErrSilent].
func (r *Reflector) Rewatch(err error) {
	select {
	case r.rewatchRequests <- err:
	default: // one request is pending already
	}
}

// resume runs the guards. If all pass, the next step is a watch from the checkpoint.
func (r *Reflector) resume(ctx context.Context) error {
	r.opts.Observer.Phase(PhaseResuming, nil)
	if err := r.validate(ctx); err != nil {
		return r.relistFor(err)
	}
	r.validated, r.resumed = true, true
	r.opts.Logger.Info("resuming watch", "rv", r.rv)
	r.opts.Observer.Resumed(r.rv)
	return nil
}

// validate runs the guards. It returns nil if the checkpoint may be used, a [*RelistError] if it
// must not, and any other error if a guard could not check it.
func (r *Reflector) validate(ctx context.Context) error {
	cluster, err := r.opts.Identity(ctx)
	if err != nil {
		return fmt.Errorf("identify cluster: %w", err)
	}
	if err := r.clusterChanged(cluster); err != nil {
		return err
	}
	if err := r.opts.Member.follow(); err != nil {
		return err
	}
	err = r.opts.Source.Probe(ctx, r.rv)
	switch {
	case err == nil:
	case errors.Is(err, upstream.ErrAhead):
		if r.ahead++; r.ahead >= aheadTries {
			return &RelistError{Reason: store.ReasonRVAhead, Err: err}
		}
		return err
	case expired(err):
		return &RelistError{Reason: store.ReasonExpired, Err: err}
	default:
		return fmt.Errorf("probe: %w", err)
	}
	r.ahead = 0
	for _, guard := range append([]Guard{r.schemaChanged}, r.opts.Guards...) {
		if err := guard(ctx); err != nil {
			return err
		}
	}
	r.validatedAt = r.opts.Clock.Now()
	return nil
}

// list replaces the content of the queue's consumer with a complete list.
func (r *Reflector) list(ctx context.Context) (err error) {
	r.opts.Observer.Phase(PhaseListing, nil)
	start, proofs := r.opts.Clock.Now(), r.opts.Member.begin()
	cluster, err := r.opts.Identity(ctx)
	if err != nil {
		return fmt.Errorf("identify cluster: %w", err)
	}
	if err := r.clusterChanged(cluster); err != nil && r.mustBeOneHistory() {
		return r.relistFor(err)
	}
	// Read before the list: if the schema changes meanwhile, the next comparison finds it.
	schema, err := r.opts.Schema(ctx)
	if err != nil {
		return err
	}
	if err := r.anotherSchema(schema); err != nil && r.mustBeOneHistory() {
		return r.relistFor(err) // the stored objects have another form, whatever the list was for
	}
	list, done, err := r.listChanged(ctx, cluster, schema)
	if !done {
		list, err = r.listOnce(ctx, cluster, schema, r.opts.PageSize, nil)
	}
	if !done && expired(err) {
		// The server compacted the state between two pages. A list in one body can't expire.
		list, err = r.listOnce(ctx, cluster, schema, 0, nil)
	}
	if err != nil {
		return r.relistFor(fmt.Errorf("list: %w", err))
	}
	took := r.opts.Clock.Since(start)
	attrs := []any{"reason", r.reason, "rv", list.rv, "items", list.items, "took", took.Round(time.Millisecond)}
	if list.seed != "" {
		attrs = append(attrs, "seed", list.seed)
	}
	if list.kept > 0 {
		attrs = append(attrs, "fetched", list.items-list.kept)
	}
	r.opts.Logger.Info("listed", attrs...)
	r.opts.Observer.Listed(r.reason, list.rv, list.items, took)
	r.reached(list.rv)
	r.cluster, r.schema, r.reason = cluster, schema, ""
	r.opts.Member.listed(proofs)
	r.validated, r.resumed, r.ahead, r.silent, r.versionFailures = true, false, 0, 0, 0
	r.validatedAt = r.opts.Clock.Now()
	r.suspectDeletes = nil
	return nil
}

// complete is a list that is complete and queued.
type complete struct {
	rv    string
	items int64
	kept  int64  // of the items, known by their versions, if only what has changed was listed
	seed  string // the server that it came from, if that is not the one in use
}

// listOnce makes one list into the queue: a whole one, or only of changes if that is not nil. If it fails
// after the list has begun, it aborts the queue's list.
func (r *Reflector) listOnce(ctx context.Context, cluster, schema string, pageSize int64, only *changes) (list complete, err error) {
	replace := deltafifo.Replace{
		Reason: string(r.reason), Cluster: cluster, Schema: schema, Force: !r.reason.TrustsVersions(), Confirm: r.guardMassDelete,
	}
	if r.mustBeOneHistory() {
		replace.Compare = r.compare
	}
	err = r.opts.Queue.BeginReplace(ctx, replace)
	if err != nil {
		return list, err
	}
	defer func() {
		if err != nil {
			r.opts.Queue.AbortReplace()
		}
	}()
	opts := upstream.ListOptions{
		PageSize: pageSize, WatchTimeout: watchTimeout(r.opts.MinWatchTimeout), Deleted: r.opts.Queue.DropItem,
		Progress: func(count, remaining int64) { r.opts.Observer.Listing(r.reason, count, remaining) },
		Invalid: func(key string, err error) {
			r.skipped(err)
			if key != "" {
				r.opts.Queue.KeepItem(key)
			}
		},
	}
	if r.reason == store.ReasonInitial {
		opts.Seeded = func(server string, err error) {
			if err != nil {
				r.opts.Logger.Warn("the first list does not come from the seed", "seed", server, "error", upstream.Explain(err))
				return
			}
			list.seed = server
		}
	}
	var refused *RelistError
	each := func(o *object.Object) error {
		if !r.expected(o) {
			return nil
		}
		list.items++
		err := r.opts.Queue.ReplaceItem(o)
		if proof := asRelist(err); proof != nil {
			// It is one only if the list is not of an older state, which is known at its end.
			refused = cmp.Or(refused, proof)
			return nil
		}
		return err
	}
	if only != nil {
		list.rv, list.kept, err = only.list(ctx, opts, each)
		list.items += list.kept
	} else {
		list.rv, err = r.opts.Source.List(ctx, opts, each)
	}
	if err != nil {
		return list, err
	}
	if err := r.wentBack(ctx, list.rv); err != nil {
		return list, err
	}
	if refused != nil {
		return list, refused
	}
	return list, r.opts.Queue.EndReplace(list.rv)
}

// skipped reports an object or event of the server that can't be used.
func (r *Reflector) skipped(err error) {
	r.opts.Logger.Warn("skipped an object that can't be used", "error", err)
	r.opts.Observer.Skipped(err)
}

// expected reports whether an object is of the expected type. Others are skipped.
func (r *Reflector) expected(o *object.Object) bool {
	if r.opts.Kind != "" && o.Kind() != r.opts.Kind || r.opts.APIVersion != "" && o.APIVersion() != r.opts.APIVersion {
		r.skipped(fmt.Errorf("%s: expected a %s, the server sent a %s", o.Key(),
			typeName(r.opts.APIVersion, r.opts.Kind), typeName(o.APIVersion(), o.Kind())))
		return false
	}
	return true
}

// typeName returns the name of a type in errors and comparisons.
func typeName(apiVersion, kind string) string { return strings.TrimSpace(apiVersion + " " + kind) }

// pause waits before the next try, as long as the backoff or, if that is longer, the server asks
// for, up to some minutes. If the wait is ended early, by a bell or a proof of another collection, the
// backoff starts over: the network may need a few more seconds.
func (r *Reflector) pause(ctx context.Context, err error) {
	r.validated = false
	// Not DelayWithReset of package wait: that starts over every two minutes even during an
	// outage, which would then cost twice the requests.
	if r.opts.Clock.Since(r.paused) >= backoffReset || errors.Is(err, upstream.ErrAhead) && r.ahead == 1 {
		r.backoff = *r.opts.Backoff // in the latter case the server answers again, and is asked whether it lags
	}
	d := r.backoff.Step()
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		d = sleep.Delay(d, time.Duration(seconds)*time.Second)
	}
	r.opts.Logger.Info("waiting before the next try", "wait", d.Round(time.Millisecond), "error", upstream.Explain(err))
	r.opts.Observer.Phase(PhaseWaiting, err)
	if sleep.Retry(ctx, r.opts.Clock, d, r.opts.Member.next()) {
		r.backoff = *r.opts.Backoff
	}
	r.paused = r.opts.Clock.Now()
}

// expired reports whether an error means that the server has compacted a resourceVersion.
func expired(err error) bool {
	return err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err))
}
