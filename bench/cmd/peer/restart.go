package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"golang.org/x/sync/errgroup"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	"github.com/snapcache/snapcache/upstream"
)

// ofNode are the resources of which a node caches only its own objects.
const ofNode = "pods"

// selector returns the field selector of a node's objects of a resource, empty for all objects.
func (s settings) selector(resource string) string {
	if resource != ofNode {
		return ""
	}
	return fields.OneTermEqualSelector("spec.nodeName", objects.NodeName(s.node)).String()
}

// restartTyped runs client-go's informers of a node.
func restartTyped(ctx context.Context, s settings, d *delays) (*cached, error) {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	all := clientinformers.NewSharedInformerFactoryWithOptions(client, 0, versionsOnly)
	own := clientinformers.NewSharedInformerFactoryWithOptions(client, 0, versionsOnly,
		clientinformers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = s.selector(ofNode) }))
	byName := map[string]cache.SharedIndexInformer{}
	for _, r := range s.resources {
		factory := all
		if r.Name == ofNode {
			factory = own
		}
		generic, err := factory.ForResource(r.GVR)
		if err != nil {
			return nil, err
		}
		byName[r.Name] = generic.Informer()
	}
	c, err := informers(byName, d, func() error {
		all.Shutdown()
		own.Shutdown()
		return nil
	})
	all.Start(ctx.Done())
	own.Start(ctx.Done())
	if c != nil {
		c.own = ofNode
	}
	return c, err
}

// wholeLists hides that a source can list versions, so that a list is a whole one.
type wholeLists struct{ reflector.Source }

// restartAgent runs the pipelines of a node's agent, on a store in memory.
func restartAgent(whole bool) func(context.Context, settings, *delays) (*cached, error) {
	return func(ctx context.Context, s settings, _ *delays) (*cached, error) {
		cluster, err := upstream.New(s.config)
		if err != nil {
			return nil, err
		}
		db, lists := memory.New(), &listCounter{}
		all := map[string]store.Collection{}
		var running errgroup.Group
		for _, r := range s.resources {
			c, err := db.Open(store.Info{ID: r.Name})
			if err != nil {
				return nil, err
			}
			all[r.Name] = c
			p := nodePipeline(cluster, c, s, upstream.Resource{GVR: r.GVR, Kind: r.Kind, Namespaced: r.Name != "nodes"}, lists, whole)
			running.Go(func() error { return p.Run(ctx) })
		}
		return &cached{
			own: ofNode,
			synced: func() bool {
				for _, c := range all {
					if !c.State().Synced {
						return false
					}
				}
				return true
			},
			get: func(resource, key string) string {
				h, err := all[resource].Lookup().Header(key)
				if err != nil {
					return ""
				}
				return h.RV
			},
			versions: func() map[string]map[string]string { return storedVersions(all) },
			lists:    lists.count,
			stop: func() error {
				err := running.Wait()
				cluster.Close()
				if errors.Is(err, context.Canceled) {
					return nil
				}
				return err
			},
		}, nil
	}
}

func nodePipeline(cluster *upstream.Cluster, c store.Collection, s settings, r upstream.Resource, lists *listCounter, whole bool) *pipeline.Pipeline {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	source := cluster.Source(upstream.SourceOptions{
		Resource: r, FieldSelector: s.selector(r.GVR.Resource), Prune: object.NewPrune(object.ManagedFields),
	})
	o := reflector.Options{
		Source: source, Identity: cluster.Identity, Kind: r.Kind, Observer: lists, Logger: log,
		Schema: func(ctx context.Context) (string, error) { return cluster.Schema(ctx, r) },
		Guards: []reflector.Guard{reflector.Canary(c, source, log)},
	}
	if whole {
		o.Source = wholeLists{source}
	}
	return pipeline.New(o, pipeline.LoopOptions{Collection: c})
}

// storedVersions returns the resourceVersion of each object.
func storedVersions(all map[string]store.Collection) map[string]map[string]string {
	versions := map[string]map[string]string{}
	for name, c := range all {
		versions[name] = map[string]string{}
		now := c.Lookup()
		for key, err := range (pipeline.KnownObjects{Collection: c}).Keys() {
			if err != nil {
				panic(fmt.Sprintf("keys of %s: %v", name, err)) // a store in memory has no errors
			}
			if h, err := now.Header(key); err == nil {
				versions[name][key] = h.RV
			}
		}
	}
	return versions
}

// listCounter counts complete lists of all collections of a node.
type listCounter struct {
	reflector.NopObserver
	n atomic.Int64
}

// Listed implements reflector.Observer.
func (l *listCounter) Listed(store.Reason, string, int64, time.Duration) { l.n.Add(1) }

func (l *listCounter) count() int { return int(l.n.Load()) }
