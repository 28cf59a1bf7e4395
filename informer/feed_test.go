package informer_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/store"
)

// fifo is a provider of client-go's metrics of informers.
type fifo struct {
	mu                        sync.Mutex
	names                     []string
	queued, most, rv, seconds float64
}

type gauge func(float64)

func (g gauge) Set(v float64)     { g(v) }
func (g gauge) Observe(v float64) { g(v) }

func (f *fifo) metric(id cache.InformerNameAndResource, set func(float64)) gauge {
	f.names = append(f.names, id.Name()+" "+id.GroupVersionResource().String())
	return func(v float64) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if id.Reserved() {
			set(v)
		}
	}
}

func (f *fifo) NewQueuedItemMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return f.metric(id, func(v float64) { f.queued, f.most = v, max(f.most, v) })
}

func (f *fifo) NewProcessingLatencyMetric(id cache.InformerNameAndResource) cache.HistogramMetric {
	return f.metric(id, func(v float64) { f.seconds += v })
}

func (f *fifo) NewStoreResourceVersionMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return f.metric(id, func(v float64) { f.rv = v })
}

// read returns the values, and resets the highest number of queued items and the times.
func (f *fifo) read() (queued, most, rv, seconds float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	queued, most, rv, seconds = f.queued, f.most, f.rv, f.seconds
	f.most, f.seconds = 0, 0
	return queued, most, rv, seconds
}

// global is the provider of the whole process: only the first that is set counts.
var global = &fifo{}

func init() { cache.SetInformerMetricsProvider(global) }

func informerName(t testing.TB, name string) *cache.InformerName {
	n, err := cache.NewInformerName(name)
	require.NoError(t, err)
	t.Cleanup(n.Release)
	return n
}

// client-go's metrics of a named informer have its queue, the time of its batches and its
// resourceVersion, from the provider that is set for the process or for the informer.
func TestInformerMetrics(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for _, c := range []struct {
		name     string
		provider *fifo
	}{
		{name: "global", provider: global},
		{name: "own", provider: &fifo{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bothStores(t, func(t *testing.T, db store.DB) {
				name, s := informerName(t, c.name), newServer()
				s.put("a")
				opts := []informer.Option{withStore(db, "pods"), informer.WithScheme(core()), informer.WithInformerName(name)}
				if c.provider != global {
					opts = append(opts, informer.WithInformerMetrics(c.provider))
				}
				c.provider.names = nil
				gate := make(chan struct{})
				inf := informer.NewSharedIndexInformer(s, &corev1.Pod{}, 0, cache.Indexers{"slow": func(obj any) ([]string, error) {
					switch obj.(*corev1.Pod).Name {
					case "slow":
						time.Sleep(time.Second)
					case "gate":
						<-gate
					}
					return nil, nil
				}}, opts...)
				id := c.name + " " + pods.String()
				require.ElementsMatch(t, []string{id, id, id}, c.provider.names)
				require.False(t, name.WithResource(pods).Reserved(), "the informer has the name")
				r := run(t, inf)
				synctest.Wait()
				queued, most, rv, _ := c.provider.read()
				require.Equal(t, []float64{0, 1, 1}, []float64{queued, most, rv})

				s.put("slow")
				time.Sleep(time.Minute)
				synctest.Wait()
				queued, _, rv, seconds := c.provider.read()
				require.Equal(t, []float64{0, 2}, []float64{queued, rv})
				require.GreaterOrEqual(t, seconds, 1.0)
				s.elsewhere()
				synctest.Wait()
				_, most, rv, _ = c.provider.read()
				require.Equal(t, []float64{0, 3}, []float64{most, rv}, "a bookmark is no item")

				s.put("gate")
				synctest.Wait()
				for n := range 1500 { // more than client-go's queue gives out at a time
					s.put("p" + strconv.Itoa(n))
				}
				synctest.Wait()
				queued, _, _, _ = c.provider.read()
				require.Equal(t, 1500.0, queued)
				close(gate)
				synctest.Wait()
				queued, _, rv, _ = c.provider.read()
				require.Equal(t, []float64{0, 1504}, []float64{queued, rv})
				require.Len(t, inf.GetStore().ListKeys(), 1503)

				s.hangUp()
				time.Sleep(time.Minute)
				synctest.Wait() // resumed: only replays
				queued, _, _, _ = c.provider.read()
				require.Zero(t, queued)
				r.stop()
				require.NoError(t, db.Flush())

				// The next informer begins with the stored state; without a name it has no metrics.
				name.Release()
				c.provider.rv = 0
				s.set(func(s *server) { s.watchErr = errors.New("down") })
				name = informerName(t, c.name)
				r = run(t, newInformer(s, append(opts, informer.WithInformerName(name))...))
				synctest.Wait()
				_, _, rv, _ = c.provider.read()
				require.Equal(t, 1504.0, rv)
				r.stop()
				c.provider.names = nil
				newInformer(s, informer.WithInformerMetrics(c.provider))
				require.Empty(t, c.provider.names)
			})
		})
	}
}

// An indexer without an informer reports its resourceVersion too, and a factory names its
// informers.
func TestInformerNames(t *testing.T) {
	own := &fifo{}
	x := informer.NewIndexer(&corev1.Pod{}, nil, informer.WithScheme(core()), informer.WithInformerName(informerName(t, "indexer")), informer.WithInformerMetrics(own))
	x.Bookmark("7")
	_, _, rv, _ := own.read()
	require.Equal(t, 7.0, rv)
	require.NoError(t, x.Add(pod("x", "a", "n1", 9)))
	_, _, rv, _ = own.read()
	require.Equal(t, 9.0, rv)

	name := informerName(t, "factory")
	f, err := informer.NewFactory(informer.FactoryOptions{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Scheme: core(), InformerName: name})
	require.NoError(t, err)
	require.Same(t, name, f.InformerName())
	f.InformerFor(&corev1.Pod{})
	require.False(t, name.WithResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Reserved())
	require.True(t, name.WithResource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).Reserved())
	f.Shutdown()
}
