package clustercheck

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/upstream"
)

// defaultBookmarkWait is longer than the minute between two bookmarks of a kube-apiserver.
const defaultBookmarkWait = 75 * time.Second

// progressInterval is how often the wait for bookmarks is looked at.
const progressInterval = 100 * time.Millisecond

// Scope is one collection of an agent.
type Scope struct {
	ID                       string
	Resource, Version, Group string
	Namespace                string // empty for all
	LabelSelector            string
	FieldSelector            string
}

// Options configure a check.
type Options struct {
	Scopes []Scope

	// BookmarkWait limits the wait for a bookmark. 0 is 75 s.
	BookmarkWait time.Duration

	// Progress, if not nil, receives a line about the work that is being done, often.
	Progress func(format string, args ...any)
}

// Run checks the server of cfg. It fails if the server can't be asked at all, or ctx ends.
func Run(ctx context.Context, cfg *rest.Config, opts Options) (*Report, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return counter{rt} })
	cluster, err := upstream.New(cfg)
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	s, err := newServer(cfg)
	if err != nil {
		return nil, err
	}
	defer s.client.CloseIdleConnections()
	if opts.Progress == nil {
		opts.Progress = func(string, ...any) {}
	}
	if opts.BookmarkWait == 0 {
		opts.BookmarkWait = defaultBookmarkWait
	}
	opts.Progress("asking %s", cluster.Server())
	first, cancel := context.WithTimeout(ctx, smallTimeout)
	version, err := cluster.ServerVersion(first)
	cancel()
	if err != nil {
		return nil, fmt.Errorf("%s could not be asked: %s", cluster.Server(), upstream.Describe(err))
	}
	r := &Report{
		Server: cluster.Server(), Version: gjson.GetBytes(version, "gitVersion").Str,
		Features: Features{WatchList: Unknown}, Problems: []string{}, Notes: []string{}, Collections: make([]Collection, len(opts.Scopes)),
	}
	c := &checker{Options: opts, cluster: cluster, server: s, report: r}
	// Before anything else is sent, which would make the small requests slower.
	r.Latency, r.Clock = s.sample(ctx)
	r.Features.AggregatedDiscovery, r.Features.ConsistentReads = s.aggregatedDiscovery(ctx), s.consistentReads(ctx)
	c.collections(ctx)
	r.complete()
	return r, context.Cause(ctx)
}

type checker struct {
	Options
	cluster *upstream.Cluster
	server  *server
	report  *Report
}

// collections measures the collections one after another, and meanwhile waits for bookmarks of those before.
func (c *checker) collections(ctx context.Context) {
	var waiting sync.WaitGroup
	var left atomic.Int64
	for i, scope := range c.Scopes {
		measured := &c.report.Collections[i]
		measured.Collection = scope.ID
		source, err := c.source(ctx, scope)
		rv := ""
		if err == nil {
			rv, err = measure(ctx, measured, source, c.Progress)
		}
		if err != nil {
			measured.Problem = upstream.Describe(err)
			continue
		}
		left.Add(1)
		waiting.Go(func() {
			measured.Bookmark = awaitBookmark(ctx, source, rv, c.BookmarkWait)
			left.Add(-1)
		})
	}
	for began := time.Now(); left.Load() > 0 && ctx.Err() == nil; {
		c.Progress("waiting for bookmarks of %d collections: %s of at most %s", left.Load(), time.Since(began).Round(time.Second), c.BookmarkWait)
		_ = sleep.For(ctx, clock.RealClock{}, progressInterval)
	}
	waiting.Wait()
}

// source looks a resource up. With the first one that is found, it asks for a watch that begins with a list.
func (c *checker) source(ctx context.Context, scope Scope) (*upstream.Source, error) {
	small, cancel := context.WithTimeout(ctx, smallTimeout)
	defer cancel()
	resource, err := c.cluster.Resolve(small, scope.Resource, scope.Version, scope.Group)
	if err != nil {
		return nil, err
	}
	if c.report.Features.WatchList == Unknown {
		c.report.Features.WatchList = c.server.watchList(ctx, scope, resource)
	}
	return c.cluster.Source(upstream.SourceOptions{
		Resource: resource, Namespace: scope.Namespace, LabelSelector: scope.LabelSelector, FieldSelector: scope.FieldSelector,
	}), nil
}
