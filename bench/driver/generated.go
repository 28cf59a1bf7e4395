package driver

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/peer"
	"github.com/snapcache/snapcache/bench/result"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// generated is a server of pods that it makes when they are listed, so that a million of them need no control plane.
// It answers the requests of the library on a first sync: lists by pages, in protobuf and packed with gzip, and watches,
// which stay open without an event.
type generated struct {
	pods   int
	server *httptest.Server
	mu     sync.Mutex
	sent   map[string]string // resourceVersions by key
}

// generatedPage is the size of a page of a list, and of a namespace.
const generatedPage = 500

// generatedStage lets the durable library with a handler list generated pods.
func (d *Driver) generatedStage(ctx context.Context, st Stage) (done result.Stage, err error) {
	g := &generated{pods: st.Generated, sent: map[string]string{}}
	g.server = httptest.NewUnstartedServer(g)
	g.server.EnableHTTP2 = true
	g.server.StartTLS()
	network, err := measure.NewNetwork(g.server.Listener.Addr().String())
	if err != nil {
		return done, err
	}
	defer func() {
		g.server.CloseClientConnections()
		err = errors.Join(err, network.Close())
		g.server.Close()
	}()
	l := launch{
		name: LibraryBolt, dir: filepath.Join(d.scratch, LibraryBolt), resources: peer.Resources[:1], handler: true,
		kubeconfig: filepath.Join(d.scratch, "kubeconfig"), read: mark(g.page(0)[0]),
	}
	last := g.page((g.pods - 1) / generatedPage)
	l.marks = []peer.Mark{mark(last[len(last)-1])}
	c := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	c.Clusters["generated"] = &clientcmdapi.Cluster{Server: "https://" + network.Address(), CertificateAuthorityData: ca}
	c.Contexts["generated"] = &clientcmdapi.Context{Cluster: "generated"}
	c.CurrentContext = "generated"
	if err := clientcmd.WriteToFile(*c, l.kubeconfig); err != nil {
		return done, fmt.Errorf("kubeconfig: %w", err)
	}
	sample, err := json.Marshal(g.page(0))
	if err != nil {
		return done, fmt.Errorf("size of the objects: %w", err)
	}
	name := l.resources[0].Name
	done = result.Stage{
		Name: st.Name, Objects: g.pods, Resources: map[string]int{name: g.pods},
		JSONBytes: int64(len(sample)) * int64(g.pods) / int64(min(g.pods, generatedPage)),
	}
	p, cost, err := d.started(ctx, network, l)
	if err != nil {
		return done, fmt.Errorf("generated pods: %w", err)
	}
	d.log("%-18s caught up %5.1f s, handled %5.1f s, cpu %6.2f s, own peak %4d MB, settled %4d MB, files %4d MB, on disk %5d MB",
		st.Name, cost.CaughtUpSeconds, cost.HandledSeconds, cost.SettledCPU, cost.PeakOwn>>20, cost.Own()>>20, cost.File>>20, cost.DiskBytes>>20)
	if err := check(ctx, p, map[string]peer.Content{name: peer.ContentOf(g.sent)}); err != nil {
		return done, errors.Join(err, p.kill())
	}
	done.Turns = []result.Turn{{Scenario: FirstHandled, Peer: LibraryBolt, Cost: cost}}
	return done, p.stop()
}

func mark(pod corev1.Pod) peer.Mark {
	return peer.Mark{Resource: peer.Resources[0].Name, Key: pod.Namespace + "/" + pod.Name, RV: pod.ResourceVersion}
}

// page returns the pods of a page. All pages are in the order of the keys, as an API server's.
func (g *generated) page(number int) []corev1.Pod {
	var pods []corev1.Pod
	for i := number * generatedPage; i < min(g.pods, (number+1)*generatedPage); i++ {
		pod := objects.Pod(objects.Namespace(number), i, seed)
		pod.ResourceVersion = strconv.Itoa(i + 1)
		pods = append(pods, *pod)
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// ServeHTTP implements http.Handler.
func (g *generated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch q := r.URL.Query(); {
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "generated", ResourceVersion: "1"},
		})
	case r.URL.Path != "/api/v1/pods":
		http.NotFound(w, r)
	case q.Get("watch") != "":
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		g.list(w, q.Get("limit"), q.Get("continue"))
	}
}

// list sends a page, or one pod to a probe.
func (g *generated) list(w http.ResponseWriter, limit, from string) {
	number, _ := strconv.Atoi(from) // 0 for the first page
	list := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: g.page(number),
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(g.pods)},
	}
	switch limit {
	case "1":
		list.Items = list.Items[:1]
	case strconv.Itoa(generatedPage):
		g.mu.Lock()
		for _, pod := range list.Items {
			g.sent[pod.Namespace+"/"+pod.Name] = pod.ResourceVersion
		}
		g.mu.Unlock()
		if left := int64(g.pods - (number+1)*generatedPage); left > 0 {
			list.Continue, list.RemainingItemCount = strconv.Itoa(number+1), &left
		}
	default:
		http.Error(w, "lists have pages of "+strconv.Itoa(generatedPage), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	w.Header().Set("Content-Encoding", "gzip")
	packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // a kube-apiserver's level
	_ = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(list, io.Writer(packed))
	_ = packed.Close() // the client notices a page that was cut off
}
