package informer

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// drainTimeout is how long a stop waits for queued changes to be stored.
const drainTimeout = 10 * time.Second

var errStarted = errors.New("informer has already started")

// RunWithContext implements [cache.SharedInformer]. It returns when ctx has ended
// and the handlers have returned, or when the store was closed.
func (s *sharedIndexInformer) RunWithContext(ctx context.Context) {
	s.mu.Lock()
	again := s.started
	s.started = true
	s.mu.Unlock()
	if again {
		klog.FromContext(ctx).Info("Warning: an informer can be run once only")
		return
	}
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
	if !s.open(ctx) {
		return
	}
	wg.Go(func() { s.processor.resyncs(helpers) })
	s.pipeline(ctx)
	if err := s.indexer.opts.db.Flush(); err != nil {
		s.indexer.opts.logger.Warn("could not flush", "error", err)
	}
}

// open opens the store and gives the handlers what is in it, as often as it takes;
// false says that ctx ended.
func (s *sharedIndexInformer) open(ctx context.Context) bool {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Cap: 30 * time.Second, Factor: 2, Jitter: 0.2, Steps: 10}
	for {
		err := s.indexer.open()
		if err == nil {
			err = s.processor.Start()
		}
		if err == nil {
			return true
		}
		d := backoff.Step()
		s.indexer.opts.logger.Error("the store can't be opened; it is tried again", "collection", s.indexer.opts.id, "wait", d, "error", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(d):
		}
	}
}

// pipeline runs reflector, queue and loop until ctx ends, and then stores what is
// queued.
func (s *sharedIndexInformer) pipeline(ctx context.Context) {
	o, coll := &s.indexer.opts, s.indexer.coll
	log := o.logger.With("collection", o.id)
	state := coll.State()
	var reason store.Reason
	switch {
	case !state.Synced:
		reason = store.ReasonInitial
	case coll.Info().Scope() != coll.info.Scope():
		reason = store.ReasonScopeChanged
	}
	queue := deltafifo.New(deltafifo.Options{Known: Known{Collection: coll}})
	queue.Start(state.RV)
	refl := reflector.New(reflector.Options{
		Name: o.id, Queue: queue, Identity: o.identity, Logger: log, Observer: s.observer(ctx),
		Source:     reflector.NewListWatch(s.lw, reflector.ListWatchOptions{Encode: s.encode, OnSkip: s.skipped}),
		Checkpoint: state.Checkpoint, Reason: reason,
	})
	loop := New(Options{
		Name: o.id, Queue: queue, Collection: coll, Flush: o.db.Flush, Processor: s.processor, Replaced: s.indexer.decoder.reset, Logger: log,
	})
	// The loop outlives ctx by as long as it takes to store what is queued.
	draining, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	// A closed queue frees a reflector that waits for room in it.
	defer context.AfterFunc(running, queue.Close)()
	done := make(chan error, 1)
	go func() {
		done <- loop.Run(draining)
		cancel()
	}()
	_ = refl.Run(running) // it ends with ctx, or with the loop, whose error says why
	queue.Close()
	timer := time.AfterFunc(drainTimeout, stop)
	defer timer.Stop()
	if err := <-done; err != nil {
		log.Error("the informer ends", "error", err)
	}
}

// observer tells what the reflector meets.
func (s *sharedIndexInformer) observer(ctx context.Context) reflector.Observer {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &watchObserver{ctx: ctx, handler: s.watchError, skipped: s.skipped}
	if o.handler != nil {
		o.stand = cache.NewReflectorWithOptions(s.lw, s.example, nil, cache.ReflectorOptions{Name: s.indexer.opts.id})
	}
	return o
}

func (s *sharedIndexInformer) skipped(err error) {
	s.indexer.opts.logger.Warn("skipped an object that can't be used", "collection", s.indexer.opts.id, "error", err)
}

type watchObserver struct {
	reflector.Silent
	ctx     context.Context
	handler cache.WatchErrorHandlerWithContext
	stand   *cache.Reflector // what a handler is given
	skipped func(error)
}

// Phase implements [reflector.Observer].
func (o *watchObserver) Phase(p reflector.Phase, err error) {
	if p == reflector.PhaseWaiting && err != nil && o.handler != nil {
		o.handler(o.ctx, o.stand, err)
	}
}

// Skipped implements [reflector.Observer].
func (o *watchObserver) Skipped(err error) { o.skipped(err) }
