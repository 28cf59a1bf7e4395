package informer_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
)

// oneWriter is a store that records each write to a collection by another than its newest opening.
type oneWriter struct {
	store.DB

	mu     sync.Mutex
	newest map[string]*written
	faults []string

	flushing func() // called by Flush; nil for none
	viewing  func() // called by the next View; nil for none
}

// written is one opening of a collection.
type written struct {
	store.Collection
	db *oneWriter
	id string
}

func watchWriters(db store.DB) *oneWriter { return &oneWriter{DB: db, newest: map[string]*written{}} }

func (db *oneWriter) Open(info store.Info, indexes ...store.Index) (store.Collection, error) {
	c, err := db.DB.Open(info, indexes...)
	if err != nil {
		return nil, err
	}
	w := &written{Collection: c, db: db, id: info.ID}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.newest[info.ID] = w
	return w, nil
}

// writes records a write by c.
func (db *oneWriter) writes(c *written, what string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.newest[c.id] != c {
		db.faults = append(db.faults, fmt.Sprintf("%s of %s by an opening that is not the newest", what, c.id))
	}
}

func (db *oneWriter) found() []string {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.faults
}

func (db *oneWriter) Flush() error {
	if db.flushing != nil {
		db.flushing()
	}
	return db.DB.Flush()
}

func (db *oneWriter) View(id string) (store.View, error) {
	db.mu.Lock()
	hook := db.viewing
	db.viewing = nil
	db.mu.Unlock()
	if hook != nil {
		hook()
	}
	return db.DB.View(id)
}

func (c *written) Apply(b store.Batch) error {
	c.db.writes(c, "apply")
	err := c.Collection.Apply(b)
	c.db.writes(c, "apply")
	return err
}

func (c *written) Replace() (store.Replacement, error) {
	c.db.writes(c, "replace")
	r, err := c.Collection.Replace()
	return writing{r, c}, err
}

type writing struct {
	store.Replacement
	c *written
}

func (r writing) Commit(cp store.Checkpoint) error {
	r.c.db.writes(r.c, "commit")
	err := r.Replacement.Commit(cp)
	r.c.db.writes(r.c, "commit")
	return err
}

// reported returns the recorder of the errors that an informer's watch error handler gets.
func reported(t testing.TB, inf cache.SharedInformer) *recorder {
	errs := &recorder{}
	require.NoError(t, inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { errs.add("%v", err) }))
	return errs
}

// Of two informers of one collection the second waits, and all its reads report that. It takes
// neither changes nor indexes from the first, and goes on from the state in which the first ended.
func TestSecondInformerWaits(t *testing.T) {
	for _, c := range []struct {
		name  string
		scope store.Scope // of the second
		want  []string
		lists int
	}{
		{"of the same scope", store.Scope{}, []string{`collection pods in `, "informer.WithStore"}, 0},
		{"of another scope", store.Scope{LabelSelector: "app=a"}, []string{
			`collection pods in `,
			"scope is {GVR:/v1, Resource=pods Kind:Pod Namespaced:true Namespace: LabelSelector: FieldSelector: Transform: Encoding:}",
			"Namespaced:true Namespace: LabelSelector:app=a ",
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
				s, db := newServer(), watchWriters(reopen())
				s.put("a")
				first := newInformer(s, withStore(db, "pods"))
				h1, _ := subscribe(t, first)
				r1 := run(t, first)
				synctest.Wait()
				require.Equal(t, []string{"add a@1 true"}, h1.take())
				s.counts()

				var log bytes.Buffer
				second := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, cache.Indexers{"letters": byLetters},
					withStore(db, "pods"), informer.WithScheme(core()), informer.WithScope(c.scope), informer.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				h2, _ := subscribe(t, second)
				errs := reported(t, second)
				r2 := run(t, second)
				s.put("b")
				synctest.Wait()
				require.Equal(t, []string{"add b@2 false"}, h1.take())
				require.Empty(t, h2.take())
				require.False(t, second.HasSynced())
				warned := errs.take()
				require.Len(t, warned, 1)
				for _, want := range c.want {
					require.Contains(t, warned[0], want)
				}
				require.Contains(t, log.String(), "level=WARN")
				require.Contains(t, log.String(), "collection=pods")
				if path := db.Stats().Path; path != "" {
					require.Contains(t, warned[0], path)
				}

				x := second.GetIndexer().(*informer.Indexer)
				_, _, err := x.GetByKey("ns/a")
				require.ErrorIs(t, err, store.ErrInUse)
				require.ErrorContains(t, err, "collection pods in ")
				_, err = x.ByIndex("letters", "a")
				require.ErrorIs(t, err, store.ErrInUse)
				before := x.ReadErrors()
				require.Empty(t, x.List())
				require.Greater(t, x.ReadErrors(), before, "an empty answer is reported as an error")
				require.ErrorIs(t, x.Add(pod("ns", "mine", "n1", 1)), store.ErrInUse)
				require.ErrorIs(t, x.Replace(nil, "9"), store.ErrInUse)
				require.NoError(t, second.AddIndexers(cache.Indexers{"node": byNode}), "takes effect once the informer runs")
				keys, err := first.GetIndexer().IndexKeys("node", "n2")
				require.NoError(t, err, "the collection has the first informer's indexes")
				require.Equal(t, []string{"ns/b"}, keys)

				r1.stop()
				synctest.Wait()
				require.True(t, second.HasSynced())
				require.Equal(t, []string{"add a@1 true", "add b@2 true"}, h2.take()[:2])
				require.Equal(t, c.lists, s.counts())
				s.put("c")
				synctest.Wait()
				require.Equal(t, []string{"add c@3 false"}, h2.take())
				require.Equal(t, []string{"ns/a", "ns/b", "ns/c"}, x.ListKeys())
				keys, err = x.IndexKeys("node", "n0")
				require.NoError(t, err)
				require.Equal(t, []string{"ns/c"}, keys)

				old := first.GetIndexer()
				_, _, err = old.GetByKey("ns/a")
				require.ErrorIs(t, err, store.ErrInUse)
				require.ErrorIs(t, old.Update(pod("ns", "a", "n1", 9)), store.ErrInUse)
				r2.stop()
				require.Len(t, x.List(), 3, "the indexer of a stopped informer can be read")
				if c.lists == 0 {
					keys, err = old.IndexKeys("node", "n0")
					require.NoError(t, err, "no other informer runs")
					require.Equal(t, []string{"ns/c"}, keys)
				}
				require.Empty(t, db.found())
			})
		})
	}
}

// A waiting informer can be stopped, and one that waits behind it goes on.
func TestWaitingInformersStop(t *testing.T) {
	onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
		s, db := newServer(), watchWriters(reopen())
		s.put("a")
		var all []*running
		for range 4 {
			inf := newInformer(s, withStore(db, "pods"))
			all = append(all, run(t, inf))
			synctest.Wait()
		}
		all[2].stop()
		require.True(t, all[2].IsStopped())
		_, err := all[2].AddEventHandler(&pods{})
		require.ErrorIs(t, err, informer.ErrStopped)
		all[0].stop()
		synctest.Wait()
		require.True(t, all[1].HasSynced() != all[3].HasSynced(), "exactly one waiting informer takes over")
		all[1].stop()
		synctest.Wait()
		require.True(t, all[3].HasSynced())
		all[3].stop()
		require.Empty(t, db.found())
	})
}

// An informer owns its collection until it has flushed and its handlers have returned.
func TestHandoverWaitsForFlushAndHandlers(t *testing.T) {
	for _, c := range []struct {
		name  string
		block func(db *oneWriter, inf cache.SharedInformer, on <-chan struct{}) error
	}{
		{"of a handler", func(_ *oneWriter, inf cache.SharedInformer, on <-chan struct{}) error {
			_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-on }})
			return err
		}},
		{"of the flush", func(db *oneWriter, _ cache.SharedInformer, on <-chan struct{}) error {
			db.flushing = func() { <-on }
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
				s, db := newServer(), watchWriters(reopen())
				s.put("a")
				first, second := newInformer(s, withStore(db, "pods")), newInformer(s, withStore(db, "pods"))
				on := make(chan struct{})
				require.NoError(t, c.block(db, first, on))
				r1 := run(t, first)
				synctest.Wait()
				r2 := run(t, second)
				go r1.stop()
				synctest.Wait()
				require.False(t, second.HasSynced(), "the first has not ended")
				close(on)
				synctest.Wait()
				require.True(t, second.HasSynced())
				r2.stop()
				require.Empty(t, db.found())
			})
		})
	}
}

// A read while an informer takes over the collection returns the state of before, or an error.
func TestReadDuringHandover(t *testing.T) {
	onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
		s, db := newServer(), watchWriters(reopen())
		s.put("b")
		x := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"by": byNode}, withStore(db, "pods"))
		require.NoError(t, x.Replace([]any{pod("ns", "a", "n1", 1)}, "1"))
		require.Len(t, x.List(), 1)
		inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, cache.Indexers{"by": byLetters},
			withStore(db, "pods"), informer.WithScope(store.Scope{LabelSelector: "x"}))
		var r *running
		db.viewing = func() {
			r = run(t, inf)
			synctest.Wait()
			require.Equal(t, []string{"ns/b"}, inf.GetStore().ListKeys())
		}
		_, err := x.ByIndex("by", "n1")
		require.ErrorIs(t, err, store.ErrInUse, "the result would be of another scope, by another index")
		r.stop()
		require.Empty(t, db.found())
	})
}

// mirror is a handler that holds the objects it has got, by name.
type mirror struct {
	mu   sync.Mutex
	pods map[string]string // resourceVersions
}

func (m *mirror) OnAdd(o any, _ bool) { m.OnUpdate(nil, o) }
func (m *mirror) OnUpdate(_, o any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods[o.(*corev1.Pod).Name] = o.(*corev1.Pod).ResourceVersion
}
func (m *mirror) OnDelete(o any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	delete(m.pods, o.(*corev1.Pod).Name)
}

// An informer that is removed and made again, over and over beside changes, catches up each time.
// There are never two writers, even if the next one runs before the last has ended.
func TestInformerRecreated(t *testing.T) {
	onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
		s, db := newServer(), watchWriters(reopen())
		makeOne := informer.NewFunc(db, informer.WithScheme(core()), informer.WithLogger(slog.New(slog.DiscardHandler)))
		byHand := func() cache.SharedIndexInformer {
			return newInformer(s, withStore(db, "pods"), informer.WithLogger(slog.New(slog.DiscardHandler)))
		}
		reader := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"letters": byLetters}, withStore(db, "pods"),
			informer.WithLogger(slog.New(slog.DiscardHandler)))
		for _, c := range []struct {
			name  string
			next  func() cache.SharedIndexInformer
			lists int
		}{
			{"by id", byHand, 1},
			{"by NewFunc, with unknown scopes", func() cache.SharedIndexInformer {
				return makeOne(s, &corev1.Pod{}, 0, cache.Indexers{"node": byNode})
			}, 99}, // the first resumes the collection that was made by id
		} {
			var last *running
			for n := range 100 {
				inf := c.next()
				h := &mirror{pods: map[string]string{}}
				_, err := inf.AddEventHandler(h)
				require.NoError(t, err)
				var churn sync.WaitGroup
				churn.Go(func() {
					for i := range 5 {
						s.put(strconv.Itoa((n + i) % 7))
						s.remove(strconv.Itoa((n + i + 3) % 7))
					}
				})
				churn.Go(func() {
					for range 20 { // opens the collection whenever it has no owner
						_, _, err := reader.GetByKey("ns/1")
						if err != nil && !errors.Is(err, store.ErrInUse) {
							t.Error(err)
						}
						runtime.Gosched()
					}
				})
				var r *running
				if n%3 == 0 && last != nil {
					last.stop()
					last = nil
				}
				r = run(t, inf)
				if last != nil {
					if n%3 == 1 {
						synctest.Wait() // the next informer waits
						require.False(t, inf.HasSynced())
					}
					go last.stop() // beside the next informer
				}
				churn.Wait()
				synctest.Wait()
				require.True(t, inf.HasSynced(), "round %d", n)
				want := map[string]string{}
				s.set(func(s *server) {
					for name, p := range s.objects {
						want[name] = p.ResourceVersion
					}
					s.watches = nil
				})
				have := map[string]string{}
				for _, o := range inf.GetStore().List() {
					have[o.(*corev1.Pod).Name] = o.(*corev1.Pod).ResourceVersion
				}
				require.Equal(t, want, have, "%s, round %d", c.name, n)
				h.mu.Lock()
				require.Equal(t, want, maps.Clone(h.pods), "%s, round %d: what the handler knows", c.name, n)
				h.mu.Unlock()
				last = r
			}
			last.stop()
			require.Empty(t, db.found())
			require.Equal(t, c.lists, s.counts(), c.name)
		}
	})
}

// With a client without addresses the scope of a second informer is unknown: it lists, and does not
// resume.
func TestSecondInformerUnknownTarget(t *testing.T) {
	onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
		db := reopen()
		makeOne := informer.NewFunc(db, informer.WithScheme(core()))
		shop, depot := newServer(), newServer()
		shop.put("a")
		shop.put("b")
		depot.put("c")
		first := run(t, makeOne(shop, &corev1.Pod{}, 0, nil))
		synctest.Wait()
		second := run(t, makeOne(depot, &corev1.Pod{}, 0, nil))
		synctest.Wait()
		require.True(t, first.HasSynced())
		require.False(t, second.HasSynced())
		first.stop()
		synctest.Wait()
		require.Equal(t, []string{"ns/c"}, second.GetStore().ListKeys())
		require.Equal(t, 1, depot.counts())
		second.stop()
	})
}

// Indexers without an informer share a collection, each with indexes of its own, and read each
// other's writes.
func TestIndexersShareCollection(t *testing.T) {
	onStores(t, inTime, func(t *testing.T, reopen func() store.DB) {
		db := watchWriters(reopen())
		byName := func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Name}, nil }
		a := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"by": byName, "node": byNode}, withStore(db, "pods"))
		b := informer.NewIndexer(&corev1.Pod{}, cache.Indexers{"by": byNode}, withStore(db, "pods"))
		for n := range 5 {
			name := strconv.Itoa(n)
			require.NoError(t, []*informer.Indexer{a, b}[n%2].Add(pod("ns", name, "n1", n+1)))
			keys, err := a.IndexKeys("by", name)
			require.NoError(t, err)
			require.Equal(t, []string{"ns/" + name}, keys)
			keys, err = b.IndexKeys("by", "n1")
			require.NoError(t, err)
			require.Len(t, keys, n+1)
			keys, err = a.IndexKeys("node", "n1")
			require.NoError(t, err)
			require.Len(t, keys, n+1)
		}
		require.Empty(t, db.found())
	})
}

// Reads and writes of an informer that does not run, and may never, leave the collection free. It has an
// owner from the start of Run to its end.
func TestOwnerWhileRunning(t *testing.T) {
	onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
		s, db := newServer(), reopen()
		s.put("a")
		never := newInformer(s, withStore(db, "pods"))
		require.NoError(t, never.GetIndexer().Add(pod("ns", "a", "n1", 1)))
		require.NoError(t, never.GetIndexer().Replace([]any{pod("ns", "a", "n1", 1)}, "1"))
		require.Len(t, never.GetIndexer().List(), 1)
		require.Nil(t, db.Owner("pods"))
		s.put("b")
		inf := newInformer(s, withStore(db, "pods"))
		r := run(t, inf)
		synctest.Wait()
		require.Equal(t, []string{"ns/a", "ns/b"}, inf.GetStore().ListKeys())
		require.Equal(t, "pods", db.Owner("pods").Info().ID)
		require.ErrorIs(t, never.GetIndexer().Add(pod("ns", "a", "n1", 1)), store.ErrInUse)
		r.stop()
		require.Nil(t, db.Owner("pods"))
		require.NoError(t, never.GetIndexer().Add(pod("ns", "c", "n1", 3)))
		require.Equal(t, []string{"ns/a", "ns/b", "ns/c"}, inf.GetStore().ListKeys())
	})
}

// wrapper is a program's own type around a store.
type wrapper struct{ store.DB }

// Two wrappers of one store have one owner of a collection.
func TestSecondInformerWaits_Wrappers(t *testing.T) {
	onStores(t, synctest.Test, func(t *testing.T, reopen func() store.DB) {
		s, db := newServer(), reopen()
		s.put("a")
		r1 := run(t, newInformer(s, withStore(wrapper{db}, "pods")))
		synctest.Wait()
		second := newInformer(s, withStore(&wrapper{db}, "pods"))
		errs := reported(t, second)
		r2 := run(t, second)
		s.put("b")
		synctest.Wait()
		require.True(t, r1.HasSynced())
		require.False(t, second.HasSynced())
		require.Contains(t, fmt.Sprint(errs.take()), store.ErrInUse.Error())
		s.counts()
		r1.stop()
		synctest.Wait()
		require.True(t, second.HasSynced())
		require.Equal(t, []string{"ns/a", "ns/b"}, second.GetStore().ListKeys())
		require.Zero(t, s.counts(), "it resumes")
		r2.stop()
	})
}

// Two factories on one store have one owner of a collection, also if each has a wrapper of the store.
// There is no server: the owner reports that, and the other informer that it waits.
func TestSecondInformerWaits_Factories(t *testing.T) {
	onStores(t, inTime, func(t *testing.T, reopen func() store.DB) {
		db := reopen()
		start := func(db store.DB) (*running, chan error) {
			f, err := informer.NewFactory(informer.FactoryOptions{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Scheme: core(), Store: db})
			require.NoError(t, err)
			t.Cleanup(f.Shutdown)
			inf, errs := f.InformerFor(&corev1.Pod{}), make(chan error, 1000)
			require.NoError(t, inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { errs <- err }))
			return run(t, inf), errs
		}
		r1, errs1 := start(wrapper{db})
		require.NotErrorIs(t, <-errs1, store.ErrInUse)
		r2, errs2 := start(&wrapper{db})
		require.ErrorIs(t, <-errs2, store.ErrInUse)
		r1.stop()
		require.NotErrorIs(t, <-errs2, store.ErrInUse)
		r2.stop()
		require.Nil(t, db.Owner("pods"))
	})
}
