package upstream

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/object"
)

// seedCheckTimeout limits the requests to both servers before a list of the seed.
const seedCheckTimeout = 30 * time.Second

// seed is the server that the first list of a source comes from: an agent that caches the resource.
type seed struct {
	ours, theirs *Cluster
	source       *Source     // of theirs
	failed       atomic.Bool // it is not used any more
}

// SeedFrom sets the server that first lists come from, see [ListOptions.Seeded]. It sends no request,
// and must be called before the first source is made.
func (c *Cluster) SeedFrom(cfg *rest.Config) (err error) {
	c.seed, err = New(cfg)
	return err
}

// newSeed returns the seed of a source; nil for none.
func (c *Cluster) newSeed(opts SourceOptions) *seed {
	if c.seed == nil {
		return nil
	}
	s := &seed{ours: c, theirs: c.seed, source: c.seed.Source(opts)}
	s.source.retry, s.source.meter.repeats = pageRetries, true // a hub spreads a fleet by such waits
	return s
}

// fromSeed makes a list at the seed. ok is false if that failed before an item came, so that the list
// can come from the server in use. The seed is not used again after a failure.
func (s *Source) fromSeed(ctx context.Context, opts ListOptions, each func(*object.Object) error) (rv string, ok bool, err error) {
	items := int64(0)
	if err = s.seed.check(ctx, s.opts.Resource); err == nil {
		_, err = s.seed.source.Newest(ctx) // an error if the seed can't reach its own server
	}
	if err == nil {
		rv, items, err = s.seed.source.list(ctx, opts, each)
	}
	if err == nil {
		err = s.awaitReached(ctx, rv)
	}
	if err != nil && ctx.Err() != nil {
		return "", true, err
	}
	opts.Seeded(s.seed.theirs.Server(), err)
	if err != nil {
		s.seed.failed.Store(true)
		return "", items > 0, fmt.Errorf("seed %s: %w", s.seed.theirs.Server(), err)
	}
	return rv, true, nil
}

// check returns an error unless both servers are known to be of one cluster, and serve the resource in
// the same form.
func (s *seed) check(ctx context.Context, r Resource) error {
	ctx, cancel := context.WithTimeout(ctx, seedCheckTimeout)
	defer cancel()
	theirs, theirSchema, err := s.theirs.form(ctx, r)
	if err != nil {
		return err
	}
	ours, ourSchema, err := s.ours.form(ctx, r)
	switch {
	case err != nil:
		return err
	case ours != theirs, !strings.HasPrefix(ours, "uid:"):
		return fmt.Errorf("the cluster of the seed is %s, that of the server is %s: both have to be the same, and known by the namespace kube-system", theirs, ours)
	case ourSchema != theirSchema:
		return fmt.Errorf("the seed has another schema of %s than the server", r.GVR.GroupResource())
	}
	return nil
}

// form returns the identity of the cluster, and the schema of a resource if that may be read.
func (c *Cluster) form(ctx context.Context, r Resource) (identity, schema string, err error) {
	if identity, err = c.Identity(ctx); err != nil {
		return "", "", err
	}
	if schema, err = c.Schema(ctx, r); Classify(err) == Forbidden {
		err = nil
	}
	return identity, schema, err
}

// awaitReached returns nil once the server in use is found at or past rv. It may be one of several that
// lags, or not be reached for a moment, which is no reason to list again.
func (s *Source) awaitReached(ctx context.Context, rv string) error {
	for attempt := 1; ; attempt++ {
		err := s.Probe(ctx, rv)
		if err == nil || attempt == pageAttempts || sleep.For(ctx, clock.RealClock{}, pageWait<<(attempt-1)) != nil {
			return err
		}
	}
}
