package informer_test

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

const (
	changePods  = 5_000
	changeBlock = 500 // changes that are measured at a time
)

// BenchmarkChange measures the processor time of a change, from the connection to a handler, with its share of the
// durable store's flushes, of the collector, and of a server in the same process: changes of pods of 11 kB, each when
// the handler has had the one before, with a flush each 100 ms. All pods change in turn, or a few of them, or some much
// more often than others. It reports the live heap after all changes, too.
func BenchmarkChange(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // choices of a benchmark
	zipf := rand.NewZipf(random, 1.1, 1, changePods-1)
	next := 0
	inTurn := func(of int) func() int { return func() int { next++; return next * 7919 % of } }
	b.Run("all", func(b *testing.B) { benchChange(b, inTurn(changePods)) })
	b.Run("few", func(b *testing.B) { benchChange(b, inTurn(changePods/10)) })
	b.Run("some often", func(b *testing.B) {
		benchChange(b, func() int { return int(zipf.Uint64()) * 7919 % changePods }) //nolint:gosec // below changePods
	})
}

func benchChange(b *testing.B, choose func() int) {
	s := &changing{b: b, frames: make(chan []byte)}
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer server.CloseClientConnections()
	db, err := bolt.Open(filepath.Join(b.TempDir(), "cache.db"), bolt.Options{FlushInterval: 100 * time.Millisecond, NoHistory: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	f, err := informer.NewFactory(informer.FactoryOptions{Config: config, Scheme: scheme.Scheme, Store: db})
	if err != nil {
		b.Fatal(err)
	}
	handled := make(chan string, 1)
	pods := f.InformerFor(&corev1.Pod{})
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, pod any) {
		if old.(*corev1.Pod).UID == pod.(*corev1.Pod).UID {
			handled <- pod.(*corev1.Pod).ResourceVersion
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	stop := make(chan struct{})
	defer f.Shutdown()
	defer close(stop)
	f.Start(stop)
	f.WaitForCacheSync(stop)
	var took time.Duration
	version, changes := 1, 0
	for range b.N {
		var frames [][]byte
		var rvs []string
		for range changeBlock {
			version++
			pod := s.pod(choose(), version)
			frames, rvs = append(frames, s.event(pod)), append(rvs, pod.ResourceVersion)
		}
		runtime.GC()
		before := cpuTime(b)
		for n, frame := range frames {
			s.frames <- frame
			if rv := <-handled; rv != rvs[n] {
				b.Fatalf("handled %s, not %s", rv, rvs[n])
			}
		}
		took += cpuTime(b) - before
		changes += len(frames)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(took.Microseconds())/float64(changes), "µs-CPU/change")
	b.ReportMetric(float64(m.HeapAlloc)/1e6, "live-heap-MB")
	b.ReportMetric(0, "ns/op")
}

// changing is a server with pods in protobuf, which sends the frames of a watch that it is given.
type changing struct {
	b      *testing.B
	frames chan []byte
}

func (s *changing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", apiruntime.ContentTypeProtobuf)
	switch q := r.URL.Query(); {
	case r.URL.Path != "/api/v1/pods": // the cluster's identity
		w.WriteHeader(http.StatusForbidden)
	case q.Get("watch") == "":
		list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: storetest.PodRV(changePods, 1)}}
		for i := range changePods {
			list.Items = append(list.Items, *s.pod(i, 1))
		}
		_, _ = w.Write(s.encode("PodList", &list))
	default:
		flusher := w.(http.Flusher)
		for flusher.Flush(); ; flusher.Flush() {
			select {
			case frame := <-s.frames:
				_, _ = w.Write(frame)
			case <-r.Context().Done():
				return
			}
		}
	}
}

func (s *changing) pod(i, version int) *corev1.Pod {
	var pod corev1.Pod
	if err := json.Unmarshal(storetest.Pod(i, version), &pod); err != nil {
		s.b.Fatal(err)
	}
	return &pod
}

func (s *changing) encode(kind string, m interface {
	Size() int
	MarshalToSizedBuffer(buf []byte) (int, error)
}) []byte {
	raw, body := object.NewEnvelope("v1", kind).New(m.Size())
	if _, err := m.MarshalToSizedBuffer(body); err != nil {
		s.b.Error(err)
	}
	return raw
}

// event returns the frame of a change.
func (s *changing) event(pod *corev1.Pod) []byte {
	changed := apiruntime.RawExtension{Raw: s.encode("Pod", pod)}
	event, err := (&metav1.WatchEvent{Type: string(watch.Modified), Object: changed}).Marshal()
	if err != nil {
		s.b.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...) //nolint:gosec // 11 kB
}
