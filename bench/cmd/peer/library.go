package main

import (
	"context"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// quota is the store's, in bytes, for a million pods.
const quota = 4 << 30

// libraryOnBolt runs snapcache's informer factory on the durable store.
func libraryOnBolt(ctx context.Context, s settings, d *delays) (*cached, error) {
	db, err := bolt.Open(filepath.Join(s.state, "cache.db"), bolt.Options{MaxBytes: quota, NoHistory: true})
	if err != nil {
		return nil, err
	}
	c, err := library(ctx, s, d, db)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	if d != nil && s.durable {
		wg.Go(func() { d.watch(db, ctx.Done()) })
	}
	stop := c.stop
	c.stop = func() error {
		wg.Wait()
		if err := stop(); err != nil {
			return err
		}
		return db.Close()
	}
	return c, nil
}

// libraryInLimit is libraryOnBolt under GOMEMLIMIT=64MiB. A controller that has handlers also lists a namespace each
// second.
func libraryInLimit(ctx context.Context, s settings, d *delays) (*cached, error) {
	debug.SetMemoryLimit(64 << 20)
	s.listing = d != nil
	return libraryOnBolt(ctx, s, d)
}

// libraryInMemory runs the same factory on the memory store.
func libraryInMemory(ctx context.Context, s settings, d *delays) (*cached, error) {
	return library(ctx, s, d, nil)
}

func library(ctx context.Context, s settings, d *delays, db store.DB) (*cached, error) {
	factory, err := informer.NewFactory(informer.FactoryOptions{Config: s.config, Scheme: scheme.Scheme, Store: db})
	if err != nil {
		return nil, err
	}
	byName := map[string]cache.SharedIndexInformer{}
	for _, r := range s.resources {
		if r.Type != nil {
			byName[r.Name] = factory.InformerFor(r.Type)
		} else {
			byName[r.Name] = factory.ForResource(r.GVR).Informer()
		}
	}
	c, err := informers(byName, d, func() error {
		factory.Shutdown()
		return nil
	})
	factory.StartWithContext(ctx)
	if pods := byName["pods"]; s.listing && pods != nil {
		go listNamespaces(ctx, pods)
	}
	return c, err
}

// listNamespaces lists the pods of one namespace after another, one each second, from when they are synced.
func listNamespaces(ctx context.Context, pods cache.SharedIndexInformer) {
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return
	}
	lister := corelisters.NewPodLister(pods.GetIndexer())
	namespaces := pods.GetIndexer().ListIndexFuncValues(cache.NamespaceIndex)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for i := 0; len(namespaces) > 0; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if all, err := lister.Pods(namespaces[i%len(namespaces)]).List(labels.Everything()); err == nil && len(all) == 0 && ctx.Err() == nil {
			panic("a namespace with pods has none in the cache")
		}
	}
}
