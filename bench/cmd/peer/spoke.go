package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/upstream"
)

// stored is an object in a spoke; the zero value for one that was deleted.
type stored struct{ RV, UID string }

// checkpoint is the content of a spoke's store. The spokes of a fleet share one, which they only read.
type checkpoint struct {
	RV, Cluster string
	At          time.Time
	Versions    map[string]stored // by key
	Newest      []string          // the keys with the highest resourceVersions
}

// spoke is an agent as its server sees it: source, reflector and the checks before a resume are the
// agent's own. In place of an agent's database, of which a thousand don't fit on one machine, it stores
// the key, UID and resourceVersion of each object, and shares the checkpoint's with the others until
// they change. It implements reflector.Queue and reflector.Observer.
type spoke struct {
	reflector.NopObserver
	watching atomic.Bool

	mu      sync.Mutex
	at      checkpoint
	changed map[string]stored // since the checkpoint
	listed  map[string]stored // by a list in progress
	lists   int
}

// runSpoke runs an agent. It resumes from the checkpoint in the fleet's directory. If there is none, it
// lists, and leaves one there at the end.
func runSpoke(ctx context.Context, s settings, _ *delays) (*cached, error) {
	r := s.resources[0]
	sp := &spoke{changed: map[string]stored{}}
	cluster, err := upstream.New(s.config)
	if err != nil {
		return nil, err
	}
	resource := upstream.Resource{GVR: r.GVR, Kind: r.Kind, Namespaced: true}
	source := cluster.Source(upstream.SourceOptions{Resource: resource, Prune: object.NewPrune(object.ManagedFields)})
	o := reflector.Options{
		Source: source, Queue: sp, Observer: sp, Identity: cluster.Identity, Kind: r.Kind,
		Schema: func(ctx context.Context) (string, error) { return cluster.Schema(ctx, resource) },
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if s.checkpoint != nil {
		sp.at = *s.checkpoint
		c, err := sp.canaries(r.Kind)
		if err != nil {
			return nil, err
		}
		o.Checkpoint = c.State().Checkpoint
		o.Guards = []reflector.Guard{reflector.Canary(c, source, o.Logger)}
	}
	done := make(chan error, 1)
	go func() { done <- reflector.New(o).Run(ctx) }()
	return &cached{
		synced:   sp.watching.Load,
		get:      func(_, key string) string { return sp.version(key).RV },
		versions: func() map[string]map[string]string { return map[string]map[string]string{r.Name: sp.versions()} },
		lists:    func() int { sp.mu.Lock(); defer sp.mu.Unlock(); return sp.lists },
		stop: func() error {
			if err := <-done; !errors.Is(err, context.Canceled) {
				return err
			}
			cluster.Close()
			if s.checkpoint != nil {
				return nil
			}
			return sp.save(checkpointFile(filepath.Dir(s.state)))
		},
	}, nil
}

// canaries returns a collection with the newest objects of the checkpoint, which the server is asked for
// before a resume.
func (s *spoke) canaries(kind string) (store.Collection, error) {
	c, err := memory.New().Open(store.Info{ID: "newest"})
	if err != nil {
		return nil, err
	}
	b := store.Batch{Checkpoint: store.Checkpoint{RV: s.at.RV, Cluster: s.at.Cluster, LastEvent: s.at.At}}
	for i, key := range s.at.Newest {
		namespace, name, err := cache.SplitMetaNamespaceKey(key)
		if err != nil {
			return nil, err
		}
		v := s.at.Versions[key]
		o, err := object.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":%q,"metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":%q}}`,
			kind, namespace, name, v.UID, v.RV))
		if err != nil {
			return nil, err
		}
		b.Checkpoint.Newest[i] = key
		b.Changes = append(b.Changes, store.Change{Key: key, Object: o})
	}
	return c, c.Apply(b)
}

func (s *spoke) version(key string) stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.changed[key]; ok {
		return v
	}
	return s.at.Versions[key]
}

func (s *spoke) versions() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]string, len(s.at.Versions))
	for _, versions := range []map[string]stored{s.at.Versions, s.changed} {
		for key, v := range versions {
			all[key] = v.RV
		}
	}
	maps.DeleteFunc(all, func(_, rv string) bool { return rv == "" })
	return all
}

// Phase implements reflector.Observer.
func (s *spoke) Phase(p reflector.Phase, _ error) { s.watching.Store(p == reflector.PhaseWatching) }

// Add implements reflector.Queue, as the other methods do.
func (s *spoke) Add(obj any) error { return s.Update(obj) }

// Update stores a version, unless it is older than the stored one.
func (s *spoke) Update(obj any) error {
	key, v := versionOf(obj)
	if order, ok := object.CompareRV(v.RV, s.version(key).RV); ok && order <= 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed[key] = v
	s.at.RV, s.at.At = v.RV, time.Now()
	return nil
}

// Delete stores that an object is gone.
func (s *spoke) Delete(obj any) error {
	key, _ := versionOf(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed[key] = stored{}
	return nil
}

// Bookmark stores the resourceVersion.
func (s *spoke) Bookmark(rv string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at.RV, s.at.At = rv, time.Now()
	return nil
}

// BeginReplace begins a list.
func (s *spoke) BeginReplace(_ context.Context, r deltafifo.Replace) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at.Cluster, s.listed = r.Cluster, map[string]stored{}
	return nil
}

// ReplaceItem is called by one goroutine, as all methods of the queue are.
func (s *spoke) ReplaceItem(obj any) error {
	key, v := versionOf(obj)
	s.listed[key] = v
	return nil
}

// EndReplace stores the list.
func (s *spoke) EndReplace(rv string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at.RV, s.at.At, s.at.Versions = rv, time.Now(), s.listed
	s.changed, s.listed = map[string]stored{}, nil
	s.lists++
	return nil
}

func (*spoke) AbortReplace()   {}
func (*spoke) DropItem(string) {}
func (*spoke) Flush()          {}
func (*spoke) KeepItem(string) {}
func (*spoke) Resync() error   { return nil }
func (*spoke) Skip() error     { return errors.New("an object of another type was skipped") }

// versionOf returns copies: an object's texts are parts of its bytes, which would stay in memory.
func versionOf(obj any) (key string, v stored) {
	o := obj.(*object.Object)
	return o.Key(), stored{strings.Clone(o.GetResourceVersion()), strings.Clone(string(o.GetUID()))}
}

// checkpointFile is in the directory of a fleet.
func checkpointFile(dir string) string { return filepath.Join(dir, "checkpoint.json") }

func (s *spoke) save(file string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.at.Versions, s.changed) // its own: it began without a checkpoint
	keys := slices.SortedFunc(maps.Keys(s.at.Versions), func(a, b string) int {
		order, _ := object.CompareRV(s.at.Versions[b].RV, s.at.Versions[a].RV)
		return cmp.Or(order, strings.Compare(a, b))
	})
	s.at.Newest = keys[:min(len(keys), store.NewestKeys)]
	b, err := json.Marshal(s.at)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

// load returns the checkpoint of a fleet, nil for none.
func load(file string) (*checkpoint, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var c checkpoint
	return &c, json.Unmarshal(b, &c)
}
