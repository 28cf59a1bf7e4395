package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// label marks the ConfigMaps that need a digest; byDigest is the index over it.
const (
	label    = "digest"
	byDigest = "digest"
)

// controller keeps files up to date with ConfigMaps.
type controller struct {
	indexer cache.Indexer
	synced  cache.DoneChecker
	queue   workqueue.TypedRateLimitingInterface[string]
	dir     string
}

func newController(inf cache.SharedIndexInformer, dir string) (*controller, error) {
	c := &controller{
		indexer: inf.GetIndexer(), dir: dir,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	if err := inf.AddIndexers(cache.Indexers{byDigest: func(obj any) ([]string, error) {
		return []string{obj.(*corev1.ConfigMap).Labels[label]}, nil
	}}); err != nil {
		return nil, err
	}
	handle, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.enqueue,
	})
	if err != nil {
		return nil, err
	}
	c.synced = handle.HasSyncedChecker()
	return c, nil
}

// enqueue adds a ConfigMap to the work queue. A handler does no more: workers read the cache later.
func (c *controller) enqueue(obj any) {
	// A deletion that was noticed late arrives as a DeletedFinalStateUnknown.
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		slog.Error("an object without a key", "error", err)
		return
	}
	c.queue.Add(key)
}

// run processes the queue until ctx ends.
func (c *controller) run(ctx context.Context, workers int) error {
	if !cache.WaitFor(ctx, "", c.synced) {
		return nil
	}
	// After a crash there is no event for objects deleted meanwhile, but their files still exist.
	if err := c.enqueueFiles(); err != nil {
		return err
	}
	wanted, err := c.indexer.IndexKeys(byDigest, "wanted")
	if err != nil {
		return err
	}
	slog.Info("working", "wanted", len(wanted))
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c.work() {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
	return nil
}

// enqueueFiles adds the ConfigMap of every file to the work queue.
func (c *controller) enqueueFiles() error {
	files, err := filepath.Glob(filepath.Join(c.dir, "*.digest"))
	if err != nil {
		return err
	}
	for _, file := range files {
		namespace, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".digest"), ".")
		c.queue.Add(namespace + "/" + name)
	}
	return nil
}

// work processes one key. It returns false when the queue has shut down.
func (c *controller) work() bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.reconcile(key); err != nil {
		slog.Error("reconcile failed, will retry", "configmap", key, "error", err)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// reconcile brings the file of a ConfigMap up to date.
func (c *controller) reconcile(key string) error {
	obj, exists, err := c.indexer.GetByKey(key)
	if err != nil {
		return err
	}
	// A namespace has no dot in its name, so the first one ends it.
	file := filepath.Join(c.dir, strings.Replace(key, "/", ".", 1)+".digest")
	if !exists || obj.(*corev1.ConfigMap).Labels[label] != "wanted" {
		err := os.Remove(file)
		if err == nil {
			slog.Info("removed", "configmap", key)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	want := digest(obj.(*corev1.ConfigMap))
	have, err := os.ReadFile(file)
	if err == nil && string(have) == want {
		return nil
	}
	if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
		return err
	}
	slog.Info("written", "configmap", key)
	return nil
}

// digest returns a digest of a ConfigMap's data.
func digest(m *corev1.ConfigMap) string {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(m.Data)) {
		b = fmt.Appendf(b, "%d:%s%d:%s", len(name), name, len(m.Data[name]), m.Data[name])
	}
	return fmt.Sprintf("%x\n", sha256.Sum256(b))
}
