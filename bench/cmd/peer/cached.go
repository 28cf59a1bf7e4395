package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/snapcache/snapcache/bench/peer"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// peers are all kinds of caches, by name. With a nil d there are no handlers.
var peers = map[string]func(ctx context.Context, s settings, d *delays) (*cached, error){
	"library-bolt":       libraryOnBolt,
	"library-bolt-64MiB": libraryInLimit,
	"library-memory":     libraryInMemory,
	"typed":              typed,
	"typed-trimmed":      typedTrimmed,
	"typed-json":         typedJSON,
	"dynamic":            dynamicPeer,
	"metadata":           metadataPeer,
	"controller-runtime": controllerRuntime,
}

// cached is a running cache of any kind.
type cached struct {
	synced  func() bool
	handled func() bool // whether the handlers have received all objects
	// get returns the resourceVersion of an object, or "" if it is not cached.
	get func(resource, key string) string
	// versions returns the resourceVersion of each object, by resource and key.
	versions func() map[string]map[string]string
	// lists returns the number of complete lists; nil for an unknown one.
	lists func() int
	// own is the resource of which each node of a fleet has other objects, empty for none.
	own string
	// stop waits for the end. The caller has cancelled the context.
	stop func() error
}

func (c *cached) hasAll(marks []peer.Mark, whole bool) bool {
	if whole && !c.synced() {
		return false
	}
	for _, m := range marks {
		if c.get(m.Resource, m.Key) != m.RV {
			return false
		}
	}
	return true
}

// informers returns a cache that consists of informers, by the resource's name.
func informers(byName map[string]cache.SharedIndexInformer, d *delays, stop func() error) (*cached, error) {
	var handlers registrations
	if d != nil {
		for name, inf := range byName {
			r, err := inf.AddEventHandler(d)
			if err != nil {
				return nil, fmt.Errorf("handler of %s: %w", name, err)
			}
			handlers = append(handlers, r)
		}
	}
	return &cached{
		handled: handlers.haveSynced,
		synced: func() bool {
			for _, inf := range byName {
				if !inf.HasSynced() {
					return false
				}
			}
			return true
		},
		get: func(resource, key string) string {
			obj, ok, err := byName[resource].GetIndexer().GetByKey(key)
			if err != nil || !ok {
				return ""
			}
			return version(obj)
		},
		versions: func() map[string]map[string]string {
			all := map[string]map[string]string{}
			for name, inf := range byName {
				all[name] = map[string]string{}
				// One by one: a list of all is one view of a durable store, and views have a time
				// limit.
				for _, key := range inf.GetIndexer().ListKeys() {
					obj, ok, err := inf.GetIndexer().GetByKey(key)
					if err == nil && ok { // an unreadable object counts as missing
						all[name][key] = version(obj)
					}
				}
			}
			return all
		},
		stop: stop,
	}, nil
}

type registrations []cache.ResourceEventHandlerRegistration

// haveSynced reports whether each handler has received the objects of the first list, or of the store.
func (all registrations) haveSynced() bool {
	return !slices.ContainsFunc(all, func(r cache.ResourceEventHandlerRegistration) bool { return !r.HasSynced() })
}

// version returns the resourceVersion of a cached object.
func version(obj any) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}
