package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const (
	// churnWorkers is the number of workers. They share the rate, but no objects, so that the
	// changes of one object are in order.
	churnWorkers = 4
	// churnKeep is the least number of objects of a kind that a worker aims at.
	churnKeep = 10
	// churnPause is the wait after a failure, while an apiserver may be away.
	churnPause = 100 * time.Millisecond
)

// ChurnOptions are the options of [Churn]. The zero value makes ten changes a second to pods,
// configmaps and widgets in four namespaces until the context ends.
type ChurnOptions struct {
	Rate       float64  // operations per second; 0 means 10, below 0 no limit
	Count      int      // operations to do; 0 means until the context ends
	Seed       int64    // of the operations and of the objects' contents
	Namespaces int      // shop-0000 and so on, created if missing; 0 means 4
	Kinds      []string // of "pods", "configmaps", "widgets"; none means all three
}

// ChurnCounts are the operations of a [Churn].
type ChurnCounts struct {
	Created int
	Updated int // labels, annotations and status
	Deleted int // at once, without a grace period
	Failed  int // with an error or no answer: the outcome is unknown
}

// Total returns the number of operations that succeeded.
func (c ChurnCounts) Total() int { return c.Created + c.Updated + c.Deleted }

// Churn creates, updates and deletes objects at random, and keeps their number about the same, until
// ctx ends or Count operations are done; neither is an error. While the apiserver is away it retries;
// if an operation fails for good, as one that is forbidden does, it returns the error. It changes
// objects that it finds as well as its own.
func Churn(ctx context.Context, config *rest.Config, o ChurnOptions) (ChurnCounts, error) {
	c, err := newChurner(config, o)
	if err != nil {
		return ChurnCounts{}, fmt.Errorf("churn: %w", err)
	}
	if err := c.prepareAgain(ctx, config); err != nil {
		return ChurnCounts{}, fmt.Errorf("churn: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, w := range c.workers {
		wg.Go(func() {
			if err := w.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	counts := c.counts()
	// The end of the caller's context is no failure.
	if err := context.Cause(ctx); err != nil && !errors.Is(err, ctx.Err()) {
		return counts, fmt.Errorf("churn: %w", err)
	}
	return counts, nil
}

type churner struct {
	options ChurnOptions
	client  dynamic.Interface
	limit   *rate.Limiter
	left    atomic.Int64 // operations still to do
	workers []*churnWorker

	created, updated, deleted, failed atomic.Int64
}

// churnWorker changes objects that no other worker changes.
type churnWorker struct {
	*churner
	source
	number int
	next   int                 // number of the next object to create
	keys   map[string][]string // by kind
	keep   map[string]int      // by kind: the number to keep
}

func newChurner(config *rest.Config, o ChurnOptions) (*churner, error) {
	if o.Rate == 0 {
		o.Rate = 10
	}
	if o.Namespaces == 0 {
		o.Namespaces = 4
	}
	if len(o.Kinds) == 0 {
		o.Kinds = []string{"pods", "configmaps", "widgets"}
	}
	for _, name := range o.Kinds {
		if k, err := kindOf(name); err != nil {
			return nil, err
		} else if k.make == nil {
			return nil, fmt.Errorf("%w: cannot create %s", ErrUnknownResource, name)
		}
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "churn/v1"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &churner{options: o, client: client, limit: rate.NewLimiter(rate.Limit(o.Rate), 1+int(o.Rate/10))}
	if o.Rate < 0 {
		c.limit = rate.NewLimiter(rate.Inf, 1)
	}
	c.left.Store(int64(o.Count))
	for n := range churnWorkers {
		c.workers = append(c.workers, &churnWorker{
			churner: c, source: newSource("churn", "", n, o.Seed), number: n,
			keys: make(map[string][]string), keep: make(map[string]int),
		})
	}
	return c, nil
}

// prepareAgain calls prepare until it succeeds or fails for good: the apiserver may be away at first
// too. It returns nil if ctx ends.
func (c *churner) prepareAgain(ctx context.Context, config *rest.Config) error {
	for {
		err := c.prepare(ctx, config)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if hopeless(err) {
			return err
		}
		c.failed.Add(1)
		pause(ctx)
	}
}

// prepare creates missing namespaces and the widgets' definition, and divides the existing objects
// among the workers.
func (c *churner) prepare(ctx context.Context, config *rest.Config) error {
	s, err := newSeeder(config, c.options.Seed)
	if err != nil {
		return err
	}
	for i := range c.options.Namespaces {
		if err := s.namespace(ctx, "", i); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", Namespace(i), err)
		}
	}
	lister, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, w := range c.workers {
		clear(w.keys)
	}
	for _, name := range c.options.Kinds {
		if name == "widgets" {
			if err := InstallWidgets(ctx, config); err != nil {
				return err
			}
		}
		n := 0
		for i := range c.options.Namespaces {
			list, err := lister.Resource(kinds[name].gvr).Namespace(Namespace(i)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list %s: %w", name, err)
			}
			for _, item := range list.Items {
				w := c.workers[n%churnWorkers]
				w.keys[name] = append(w.keys[name], key(item.Namespace, item.Name))
				n++
			}
		}
		for _, w := range c.workers {
			w.keep[name] = max(churnKeep, len(w.keys[name]))
		}
	}
	return nil
}

// run does operations until ctx ends, none is left to do, or one fails for good; only the last is an
// error.
func (w *churnWorker) run(ctx context.Context) error {
	for {
		if w.options.Count > 0 && w.left.Add(-1) < 0 {
			return nil
		}
		if w.limit.Wait(ctx) != nil {
			return nil
		}
		done, err := w.operate(ctx)
		if done {
			continue
		}
		w.left.Add(1) // it is still to be done
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err):
			// Another client was faster; nothing failed.
		case hopeless(err):
			return err
		default:
			w.failed.Add(1)
			pause(ctx)
		}
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(churnPause):
	}
}

// hopeless reports whether a retry can't succeed.
func hopeless(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

// operate does one operation and reports whether it succeeded.
func (w *churnWorker) operate(ctx context.Context) (bool, error) {
	name := w.from(w.options.Kinds...)
	keys := w.keys[name]
	dice := w.IntN(100)
	more, less := 30, 10 // percent of creations and of deletions
	if len(keys) >= w.keep[name] {
		more, less = 10, 30
	}
	switch {
	case len(keys) == 0 || dice < more:
		return w.create(ctx, name)
	case dice < more+less:
		return w.delete(ctx, name, w.IntN(len(keys)))
	default:
		return w.update(ctx, name, w.IntN(len(keys)))
	}
}

func (w *churnWorker) create(ctx context.Context, name string) (bool, error) {
	k := kinds[name]
	// Each worker has its own numbers, far from the ones that seeding uses.
	number := 1_000_000 + w.next*churnWorkers + w.number
	w.next++
	object, err := k.make(Namespace(w.IntN(w.options.Namespaces)), number, w.options.Seed)
	if err != nil {
		return false, err
	}
	_, err = w.client.Resource(k.gvr).Namespace(object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		w.keys[name] = append(w.keys[name], key(object.GetNamespace(), object.GetName()))
	}
	if err == nil {
		w.created.Add(1)
	}
	return err == nil, err
}

func (w *churnWorker) update(ctx context.Context, name string, i int) (bool, error) {
	k := kinds[name]
	var change map[string]any
	var subresources []string
	switch choice := w.IntN(3); {
	case choice == 0 && k.status != nil:
		change = map[string]any{"status": k.status(w.source)}
		subresources = []string{"status"}
	case choice == 1:
		change = map[string]any{"metadata": map[string]any{"labels": map[string]any{"example.com/wave": w.text(4)}}}
	default:
		change = map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/churned": w.hex(16)}}}
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return false, fmt.Errorf("patch: %w", err)
	}
	namespace, object, _ := strings.Cut(w.keys[name][i], "/")
	_, err = w.client.Resource(k.gvr).Namespace(namespace).
		Patch(ctx, object, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	switch {
	case err == nil:
		w.updated.Add(1)
	case apierrors.IsNotFound(err):
		w.forget(name, i)
	}
	return err == nil, err
}

func (w *churnWorker) delete(ctx context.Context, name string, i int) (bool, error) {
	namespace, object, _ := strings.Cut(w.keys[name][i], "/")
	err := w.client.Resource(kinds[name].gvr).Namespace(namespace).
		Delete(ctx, object, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))})
	if err == nil || apierrors.IsNotFound(err) {
		w.forget(name, i)
	}
	if err == nil {
		w.deleted.Add(1)
	}
	return err == nil, err
}

// forget drops a key that is gone.
func (w *churnWorker) forget(name string, i int) {
	keys := w.keys[name]
	keys[i] = keys[len(keys)-1]
	w.keys[name] = keys[:len(keys)-1]
}

func (c *churner) counts() ChurnCounts {
	return ChurnCounts{
		Created: int(c.created.Load()),
		Updated: int(c.updated.Load()),
		Deleted: int(c.deleted.Load()),
		Failed:  int(c.failed.Load()),
	}
}
