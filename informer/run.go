package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

var errStarted = errors.New("informer has already started")

// openBackoff is the wait between two tries to open a collection.
var openBackoff = sleep.Backoff(100*time.Millisecond, 30*time.Second, 0.2)

// RunWithContext implements [cache.SharedInformer]. It returns once ctx has ended and the handlers
// have returned, or once the store was closed.
func (s *sharedIndexInformer) RunWithContext(ctx context.Context) {
	s.mu.Lock()
	again := s.started
	s.started = true
	s.mu.Unlock()
	if again {
		klog.FromContext(ctx).Info("Warning: an informer can be run once only")
		return
	}
	s.indexer.logWith(ctx)
	s.indexer.fed.Store(true)
	defer func() { // runs last
		if err := s.indexer.coll.close(); err != nil {
			s.indexer.logger().Warn("could not close the collection", "collection", s.indexer.opts.id, "error", err)
		}
	}()
	var wg sync.WaitGroup
	defer wg.Wait()
	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	wg.Go(func() { s.indexer.decoder.detector.Run(helpers.Done()) })
	defer s.processor.Stop()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped = true
	}()
	coll := s.own(ctx)
	if coll == nil {
		return
	}
	wg.Go(func() { s.processor.resyncs(helpers) })
	wg.Go(func() { s.processor.release(helpers) })
	s.runPipeline(ctx, coll)
	if err := s.indexer.opts.db.Flush(); err != nil {
		s.indexer.logger().Warn("could not flush", "error", err)
	}
}

// own opens the collection and starts the handlers with its content. While the collection has another
// owner, it waits, and reports that to the log and the watch error handler. It retries other errors with
// a backoff. The result is nil if ctx ended.
func (s *sharedIndexInformer) own(ctx context.Context) *opened {
	coll, log := s.indexer.coll, s.indexer.logger().With("collection", s.indexer.opts.id)
	if coll.refused != nil {
		log.Error("the informer never syncs", "error", coll.refused)
		s.report(ctx, coll.refused)
		<-ctx.Done()
		return nil
	}
	backoff := openBackoff
	for {
		c, err := coll.own()
		if err == nil {
			s.processor.Hold(c.Indexed()) // as in client-go, a synced informer has its indexes
			err = s.processor.Start()
		}
		var inUse *store.InUseError
		switch {
		case err == nil:
			return c
		case errors.As(err, &inUse):
			log.Warn("the collection has another owner; waiting for it to stop, not synced until then", "error", err)
			s.report(ctx, err)
			select {
			case <-ctx.Done():
				return nil
			case <-inUse.Owner.Done():
				log.Info("the collection's other owner has closed it")
			}
		default:
			wait := backoff.Step()
			log.Error("the store can't be opened; retrying", "wait", wait, "error", err)
			if sleep.For(ctx, clock.RealClock{}, wait) != nil {
				return nil
			}
		}
	}
}

func (s *sharedIndexInformer) runPipeline(ctx context.Context, coll *opened) {
	o := &s.indexer.opts
	log := s.indexer.logger().With("collection", o.id)
	reason := pipeline.ListReason(coll.Info(), s.indexer.coll.info, coll.State())
	observer := &observer{Stats: pipeline.NewStats(clock.RealClock{}), report: func(err error) { s.report(ctx, err) }}
	r := reflector.Options{Identity: s.identity, Logger: log, Observer: observer, Reason: reason, Member: o.member(coll.Info().Group)}
	l := pipeline.LoopOptions{
		Collection: coll, Flush: o.db.Flush, Replaced: s.indexer.decoder.reset,
		Sinks: []pipeline.Sink{s.processor, observer.Stats}, StoreFailed: observer.StoreFailed,
	}
	s.readFrom(coll, &r, &l)
	p := pipeline.New(r, l)
	defer o.metrics.add(&metered{s.indexer, observer.Stats, p.Queue})()
	if err := p.Run(ctx); err != nil {
		log.Error("the informer ends", "error", err)
	}
}

// readFrom sets the source of a pipeline: the server itself if its objects can be stored as they come,
// else the program's ListerWatcher, whose objects are encoded.
func (s *sharedIndexInformer) readFrom(coll store.Collection, r *reflector.Options, l *pipeline.LoopOptions) {
	o := &s.indexer.opts
	packed := packed(o.codec)
	// A mirror needs decoded objects, and the program's client decodes them once.
	if o.direct != nil && packed && s.transform == nil && !o.watchList && s.indexer.coll.decode == nil {
		r.Logger.Info("objects are stored as protobuf, as the server sends them")
		direct := o.direct(o.drop)
		r.Source, r.Guards = direct, []reflector.Guard{reflector.Canary(coll, direct, r.Logger)}
		return
	}
	if packed {
		r.Logger.Info("objects are stored as protobuf")
	}
	lw := reflector.NewListWatch(s.lw, reflector.ListWatchOptions{Encode: s.encode, WatchList: o.watchList})
	r.Source, r.Guards = lw, []reflector.Guard{lw.SameType(coll), reflector.Canary(coll, lw, r.Logger)}
	l.Unversioned = func() bool {
		unversioned := lw.Unversioned()
		if unversioned {
			s.indexer.decoder.unversioned()
		}
		return unversioned
	}
}

// observer passes the reflector's events to the metrics and the watch error handler.
type observer struct {
	*pipeline.Stats
	report func(error) // calls the watch error handler
}

func (o *observer) Phase(p reflector.Phase, err error) {
	o.Stats.Phase(p, err)
	if p == reflector.PhaseWaiting && err != nil {
		o.report(err)
	}
}

func (o *observer) Skipped(err error) {
	o.Stats.Skipped(err)
	o.report(err)
}

func (s *sharedIndexInformer) identity(ctx context.Context) (id string, err error) {
	err = guarded(s.indexer.logger(), func() (err error) {
		id, err = s.indexer.opts.identity(ctx)
		return err
	})
	return id, err
}

// guarded calls a function of the program, which may run under the store's locks, and returns its
// panic as an error. As in client-go, utilruntime.PanicHandlers get the panic in any case, and
// guarded panics again unless utilruntime.ReallyCrash is false.
func guarded(logger *slog.Logger, call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = crashed(logger, r)
		}
	}()
	return call()
}

// crashed handles a panic that was recovered. It is a function of its own so that a call that does
// not panic needs no context.
func crashed(logger *slog.Logger, r any) (err error) {
	ctx := klog.NewContext(context.Background(), logr.FromSlogHandler(logger.Handler()))
	defer utilruntime.HandleCrashWithContext(ctx, func(context.Context, any) {
		err = fmt.Errorf("panic: %v", r)
	})
	panic(r)
}
