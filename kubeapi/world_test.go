package kubeapi

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
)

var pods = store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}

// pod is the state of an object in the model.
type pod struct {
	ns, name, uid, app, node string
	rv                       int
}

func (p *pod) key() string { return p.ns + "/" + p.name }

func (p *pod) object() *object.Object {
	spec := ""
	if p.node != "" {
		spec = fmt.Sprintf(`"nodeName":%q`, p.node)
	}
	o, err := object.Parse(fmt.Appendf(nil,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d","labels":{"app":%q}},"spec":{%s}}`,
		p.name, p.ns, p.uid, p.rv, p.app, spec))
	if err != nil {
		panic(err)
	}
	return o
}

func (c change) key() string {
	if c.old != nil {
		return c.old.key()
	}
	return c.now.key()
}

// state is the objects of the model by key; an entry is never changed.
type state map[string]*pod

// change is an event of the model.
type change struct {
	rv       int
	old, now *pod // nil for none
	after    state
}

// world is a server's history, and an agent that follows it: its store, loop and API. All that waits
// is in a synctest bubble.
type world struct {
	t      require.TestingT
	path   string        // of the store's file; empty for one in memory
	takes  time.Duration // how long the loop waits before each batch of events
	always bool
	max    int64 // of Events

	rv, uids int
	gaps     [][2]int // between checkpoint and list
	objects  state
	log      []change
	at       int // the next change that the watch delivers

	db     store.DB
	coll   store.Collection
	queue  *deltafifo.Queue
	done   chan error
	events *Events
	served *Collection
	server *Server

	// repeats lets a batch have a key more than once.
	repeats bool
	bare    bool            // the history has no attributes
	newest  atomic.Int64    // rv, for the goroutine of the loop
	bareTo  atomic.Int64    // there may be changes up to then without attributes, for want of clients
	queued  map[string]bool // keys of the batch

	offline   bool
	fault     string
	probe     func(context.Context) (string, error)
	staleness Staleness
	since     time.Time
}

// described returns a function for Collection.Description.
func described(d store.Description) func() *store.Description {
	return func() *store.Description { return &d }
}

// newWorld returns a world whose agent has not started. An empty dir stands for a store in memory.
func newWorld(t require.TestingT, dir string) *world {
	w := &world{t: t, always: true, max: EventsBytes, rv: 10, objects: state{}}
	if dir != "" {
		w.path = filepath.Join(dir, "cache.db")
	}
	return w
}

// open opens the store; start also starts the loop.
func (w *world) open() {
	var err error
	if w.path != "" {
		w.db, err = bolt.Open(w.path, bolt.Options{})
		require.NoError(w.t, err)
	} else if w.db == nil {
		w.db = memory.New()
	}
	w.events = NewEvents("", clock.RealClock{})
	if w.always {
		w.events.until = time.Now().Add(1000 * time.Hour)
		w.events.attributes = w.events.until
	}
	index := AttributesIndex(pods, store.Description{}, w.events)
	wanted := index.Wanted
	index.Wanted = func(keeps bool) bool {
		if !wanted(keeps) {
			w.bareTo.Store(w.newest.Load())
			return false
		}
		return true
	}
	indexes := []store.Index{index}
	if w.bare {
		indexes = nil
	}
	w.coll, err = w.db.Open(pods, indexes...)
	require.NoError(w.t, err)
	w.events.maxBytes = w.max
	w.events.Skip(w.coll.State().RV)
	c := &Collection{
		Info: func() store.Info { return pods }, Description: described(store.Description{}),
		View: w.coll.View, State: w.coll.State, Events: w.events, Flush: w.db.Flush,
		Freshness: func() Freshness { return Freshness{Connected: !w.offline, Since: w.since} },
		Fault:     func() string { return w.fault },
		Staleness: func() Staleness { return w.staleness },
		Probe:     w.probe,
		Changed: func() <-chan struct{} {
			w.events.mu.Lock()
			defer w.events.mu.Unlock()
			return w.events.changedLocked()
		},
	}
	w.served = c
	w.server = New(Options{Collections: func() []*Collection { return []*Collection{c} }})
}

func (w *world) start() {
	w.open()
	w.run()
}

// run runs the loop.
func (w *world) run() {
	w.queue = deltafifo.New(deltafifo.Options{KnownObjects: pipeline.KnownObjects{Collection: w.coll}})
	checkpoint := w.coll.State().RV
	w.queue.Start(checkpoint)
	loop := pipeline.NewLoop(pipeline.LoopOptions{
		Queue: w.queue, Collection: w.coll, Sinks: []pipeline.Sink{w.events},
		Around: func(b deltafifo.Batch, apply func() error) error {
			if !b.List {
				time.Sleep(w.takes)
			}
			return apply()
		},
	})
	w.done, w.queued = make(chan error, 1), map[string]bool{}
	go func() { w.done <- loop.Run(context.Background()) }()
	if rv, err := strconv.Atoi(checkpoint); err == nil {
		for w.at = 0; w.at < len(w.log) && w.log[w.at].rv <= rv; w.at++ {
			continue
		}
	}
}

// stop ends the agent. After a kill, a file has only what was flushed.
func (w *world) stop(kill bool) {
	if w.queue != nil {
		w.queue.Close()
		require.NoError(w.t, <-w.done)
		w.queue = nil
	}
	if w.path == "" {
		if w.coll != nil {
			require.NoError(w.t, w.coll.Close())
			w.coll = nil
		}
		return
	}
	var image []byte
	var err error
	if kill {
		image, err = os.ReadFile(w.path)
		require.NoError(w.t, err)
	}
	require.NoError(w.t, w.db.Close())
	if kill {
		require.NoError(w.t, os.WriteFile(w.path, image, 0o600))
	}
}

// close ends the world.
func (w *world) close() {
	w.stop(false)
	if w.path == "" {
		require.NoError(w.t, w.db.Close())
	}
}

// put creates or updates an object at the server, or deletes it if p is nil.
func (w *world) put(key string, p *pod) {
	w.rv++
	w.newest.Store(int64(w.rv))
	c := change{rv: w.rv, old: w.objects[key]}
	w.objects = maps.Clone(w.objects)
	if p == nil {
		delete(w.objects, key)
	} else {
		n := *p
		if n.rv = w.rv; c.old == nil || n.uid == "" {
			w.uids++
			n.uid = strconv.Itoa(w.uids)
		}
		c.now = &n
		w.objects[key] = &n
	}
	c.after = w.objects
	w.log = append(w.log, c)
}

// deliver queues the next changes.
func (w *world) deliver(n int) {
	if w.takes > 0 {
		w.queue.Flush() // keeps the loop busy, so that the changes are one batch
		synctest.Wait()
	}
	for ; n > 0 && w.at < len(w.log); n-- {
		c := w.log[w.at]
		w.at++
		if key := c.key(); !w.repeats && w.queued[key] {
			w.drain()
		}
		w.queued[c.key()] = true
		switch {
		case c.now == nil:
			gone := *c.old
			gone.rv = c.rv
			require.NoError(w.t, w.queue.Delete(gone.object()))
		case c.old == nil:
			require.NoError(w.t, w.queue.Add(c.now.object()))
		default:
			require.NoError(w.t, w.queue.Update(c.now.object()))
		}
	}
}

// drain waits until the loop has taken what is queued.
func (w *world) drain() {
	time.Sleep(2*w.takes + time.Millisecond) // for a batch that has begun, and the next
	synctest.Wait()
	clear(w.queued)
}

// all delivers every change and a bookmark.
func (w *world) all() {
	w.deliver(len(w.log))
	require.NoError(w.t, w.queue.Bookmark(strconv.Itoa(w.rv)))
}

// list queues a list of the newest state.
func (w *world) list() {
	reason := store.ReasonExpired
	if !w.coll.State().Synced {
		reason = store.ReasonInitial
	}
	require.NoError(w.t, w.queue.BeginReplace(context.Background(), deltafifo.Replace{Reason: string(reason), Cluster: "c"}))
	from := w.coll.State().RV
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		require.NoError(w.t, w.queue.ReplaceItem(w.objects[key].object()))
	}
	require.NoError(w.t, w.queue.EndReplace(strconv.Itoa(w.rv)))
	w.at = len(w.log)
	if n, err := strconv.Atoi(from); err == nil {
		w.gaps = append(w.gaps, [2]int{n, w.rv})
	}
}

// skipped reports whether the store may never have been at a resourceVersion: a list went past it, or a
// batch with several changes of a key. A client may have it from an event, or from before a crash.
func (w *world) skipped(rv int) bool {
	changed := map[string]bool{}
	for _, c := range w.log {
		if c.rv > rv && changed[c.key()] && w.repeats {
			return true
		}
		changed[c.key()] = true
	}
	return slices.ContainsFunc(w.gaps, func(g [2]int) bool { return g[0] < rv && rv < g[1] })
}

// stateAt returns the state at a resourceVersion.
func (w *world) stateAt(rv int) state {
	for i := len(w.log) - 1; i >= 0; i-- {
		if w.log[i].rv <= rv {
			return w.log[i].after
		}
	}
	return state{}
}

// selection is what a client asks for.
type selection struct {
	name, path, query string
	match             func(*pod) bool
}

var selections = []selection{
	{"all", "/api/v1/pods", "", func(*pod) bool { return true }},
	{"namespace", "/api/v1/namespaces/a/pods", "", func(p *pod) bool { return p.ns == "a" }},
	{"labels", "/api/v1/pods", "labelSelector=app%3Dweb", func(p *pod) bool { return p.app == "web" }},
	{"fields", "/api/v1/pods", "fieldSelector=spec.nodeName%3Dn1", func(p *pod) bool { return p.node == "n1" }},
	{"name", "/api/v1/namespaces/b/pods", "fieldSelector=metadata.name%3Dx", func(p *pod) bool { return p.key() == "b/x" }},
	{"not", "/api/v1/pods", "labelSelector=app%21%3Dweb&fieldSelector=spec.nodeName%21%3Dn1", func(p *pod) bool { return p.app != "web" && p.node != "n1" }},
}

// of returns the part of a state that is selected.
func (s selection) of(all state) map[string]string {
	out := map[string]string{}
	for key, p := range all {
		if s.match(p) {
			out[key] = p.uid + "@" + strconv.Itoa(p.rv)
		}
	}
	return out
}

// event returns what a change of the model is for a client, as TYPE key@rv; empty for nothing.
func (s selection) event(c change) string {
	old, now := c.old != nil && s.match(c.old), c.now != nil && s.match(c.now)
	p := c.now
	if p == nil {
		p = c.old
	}
	typ := store.Modified
	switch {
	case !old && !now:
		return ""
	case !old:
		typ = store.Added
	case !now:
		typ = store.Deleted
	}
	return fmt.Sprintf("%s %s@%d", typ, p.key(), c.rv)
}

// has reports whether all events after rv are still there.
func (w *world) has(rv string) bool {
	w.events.mu.Lock()
	defer w.events.mu.Unlock()
	_, known := w.events.afterLocked(rv)
	return known
}
