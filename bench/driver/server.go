package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/peer"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// changers limits the concurrent requests.
	changers = 16
	// pageSize is the page size of the lists that read the server's content.
	pageSize = 2000
	// seed of the choice of changed objects.
	seed = 1
)

// server is a control plane with objects, and the network to it.
type server struct {
	cp         *controlplane.ControlPlane
	network    *measure.Network
	kubeconfig string // through the network
	client     metadata.Interface
	etcd       *clientv3.Client
	resources  []peer.Resource
	random     *rand.Rand

	keys     map[string][]string          // of each resource, in order
	versions map[string]map[string]string // resourceVersions by resource and key
	idle     float64                      // seconds of CPU a second
}

// startServer starts a control plane in a temporary directory and creates the stage's objects.
func startServer(ctx context.Context, dir string, st Stage, log func(string, ...any)) (_ *server, err error) {
	s := &server{resources: peer.Resources[:1], random: rand.New(rand.NewPCG(seed, uint64(st.Pods)))} //nolint:gosec // the same again
	if st.Others > 0 {
		s.resources = peer.Resources
	}
	opts := controlplane.Options{Log: os.Stderr, APIServerArgs: []string{"--profiling=true"}} // for collectGarbage
	if st.Restart != nil && st.Restart.Kine {
		bin, err := controlplane.BuildServer(ctx, os.Stderr, controlplane.Server{Kine: true})
		if err != nil {
			return nil, err
		}
		opts.Binaries = &bin
	}
	if s.cp, err = controlplane.Start(ctx, opts); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if err := s.connect(dir); err != nil {
		return nil, err
	}
	began := time.Now()
	if st.Pods > 0 {
		if err := objects.SeedPodsDirect(ctx, s.cp, st.Pods); err != nil {
			return nil, err
		}
	}
	if n := st.Others; n > 0 {
		err := objects.Seed(ctx, s.cp, objects.SeedOptions{ConfigMaps: n, EndpointSlices: n, Nodes: n, Widgets: n, Namespaces: (st.Pods + 199) / 200, Seed: seed})
		if err != nil {
			return nil, err
		}
	}
	if st.Restart != nil {
		if err := s.seedNodes(ctx, *st.Restart); err != nil {
			return nil, err
		}
	}
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	log("%d objects in %.0f s", s.objects(), time.Since(began).Seconds())
	return s, s.rest(ctx)
}

func (s *server) connect(dir string) error {
	u, err := url.Parse(s.cp.URL())
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	if s.network, err = measure.NewNetwork(u.Host); err != nil {
		return err
	}
	if s.etcd, err = s.cp.EtcdClient(); err != nil {
		return err
	}
	if s.client, err = metadata.NewForConfig(s.cp.RESTConfig(controlplane.Admin)); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	path, err := s.cp.Kubeconfig(controlplane.Admin)
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + s.network.Address()
	}
	s.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, s.kubeconfig); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

func (s *server) stop() error {
	var err error
	if s.network != nil {
		err = s.network.Close()
	}
	if s.etcd != nil {
		err = errors.Join(err, s.etcd.Close())
	}
	return errors.Join(err, s.cp.Stop())
}

// look reads the keys and resourceVersions of all objects.
func (s *server) look(ctx context.Context) error {
	s.keys, s.versions = map[string][]string{}, map[string]map[string]string{}
	for _, r := range s.resources {
		versions := map[string]string{}
		for next, first := "", true; first || next != ""; first = false {
			list, err := s.client.Resource(r.GVR).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
			if err != nil {
				return fmt.Errorf("list %s: %w", r.Name, err)
			}
			next = list.Continue
			for _, o := range list.Items {
				versions[strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")] = o.ResourceVersion
			}
		}
		s.versions[r.Name] = versions
		for key := range versions {
			s.keys[r.Name] = append(s.keys[r.Name], key)
		}
		slices.Sort(s.keys[r.Name])
	}
	return nil
}

// jsonBytes returns the size of all objects as JSON, as the server sends them without compression.
// For many objects it is estimated from a sample.
func (s *server) jsonBytes(ctx context.Context) (int64, error) {
	const pages, limit = 20, 500
	client, err := kubernetes.NewForConfig(s.cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return 0, fmt.Errorf("size of the objects: %w", err)
	}
	var sum int64
	for _, r := range s.resources {
		path := "/apis/" + r.GVR.GroupVersion().String() + "/" + r.GVR.Resource
		if r.GVR.Group == "" {
			path = "/api/v1/" + r.GVR.Resource
		}
		var bytes, items int64
		next := ""
		for range pages {
			raw, err := client.RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").
				Param("limit", strconv.Itoa(limit)).Param("continue", next).DoRaw(ctx)
			if err != nil {
				return 0, fmt.Errorf("size of %s: %w", r.Name, err)
			}
			var list struct {
				metav1.ListMeta `json:"metadata"`
				Items           []struct{} `json:"items"`
			}
			if err := json.Unmarshal(raw, &list); err != nil {
				return 0, fmt.Errorf("size of %s: %w", r.Name, err)
			}
			bytes, items, next = bytes+int64(len(raw)), items+int64(len(list.Items)), list.Continue
			if next == "" {
				break
			}
		}
		if items > 0 {
			sum += bytes * int64(len(s.keys[r.Name])) / items
		}
	}
	return sum, nil
}

func (s *server) objects() (n int) {
	for _, keys := range s.keys {
		n += len(keys)
	}
	return n
}

// rest waits until the apiserver is almost idle, and records its remaining load.
func (s *server) rest(ctx context.Context) error {
	const look, enough, patience = 2 * time.Second, 0.05, 30
	for range patience {
		before, err := s.cpu()
		if err != nil {
			return err
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return ctx.Err()
		}
		after, err := s.cpu()
		if err != nil {
			return err
		}
		if s.idle = (after - before) / look.Seconds(); s.idle < enough {
			break
		}
	}
	return nil
}

// collectGarbage lets the kube-apiserver collect its garbage. That takes as much CPU as 20,000 deliveries
// or ten restarts of an agent, which make little garbage, and by itself would fall into one measurement
// and not into the next.
func (s *server) collectGarbage(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	if _, err := client.Discovery().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx); err != nil {
		return fmt.Errorf("collect the kube-apiserver's garbage: %w", err)
	}
	return nil
}

// cpu returns the CPU time of the apiserver, in seconds.
func (s *server) cpu() (float64, error) {
	d, err := measure.CPU(s.cp.APIServerPID())
	return d.Seconds(), err
}

// change changes a share of the objects, spread over all of each resource, and at the end one more
// per resource: its marks. It never changes the object of readMark.
func (s *server) change(ctx context.Context, share float64) (changed int, marks []peer.Mark, err error) {
	for _, r := range s.resources {
		keys := s.keys[r.Name][1:] // the first is readMark's
		n := int(share * float64(len(keys)))
		order := s.random.Perm(len(keys))[:n+1]
		results := make([]string, n)
		var g errgroup.Group
		g.SetLimit(changers)
		for i, k := range order[:n] {
			g.Go(func() error {
				rv, err := s.touch(ctx, r, keys[k])
				results[i] = rv
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return 0, nil, err
		}
		for i, k := range order[:n] {
			s.versions[r.Name][keys[k]] = results[i]
		}
		last := keys[order[n]]
		rv, err := s.touch(ctx, r, last)
		if err != nil {
			return 0, nil, err
		}
		s.versions[r.Name][last] = rv
		changed += n + 1
		marks = append(marks, peer.Mark{Resource: r.Name, Key: last, RV: rv})
	}
	return changed, marks, nil
}

// readMark is an object that never changes: the first pod.
func (s *server) readMark() peer.Mark {
	name := s.resources[0].Name
	key := s.keys[name][0]
	return peer.Mark{Resource: name, Key: key, RV: s.versions[name][key]}
}

// toucher sets the annotation peer.Stamp of an object to the time, and returns its resourceVersion.
type toucher func(ctx context.Context, r peer.Resource, key string) (string, error)

// touchDirect is the toucher that writes to etcd: the apiserver only follows the change.
func (s *server) touchDirect(ctx context.Context, r peer.Resource, key string) (string, error) {
	return objects.TouchDirect(ctx, s.etcd, r.Name, key, peer.Stamp, strconv.FormatInt(time.Now().UnixNano(), 10))
}

// touch is the toucher that asks the apiserver.
func (s *server) touch(ctx context.Context, r peer.Resource, key string) (string, error) {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		namespace, name = "", key
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, peer.Stamp, time.Now().UnixNano())
	o, err := s.client.Resource(r.GVR).Namespace(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return "", fmt.Errorf("change %s %s: %w", r.Name, key, err)
	}
	return o.ResourceVersion, nil
}

// forget compacts the server's history: watches from before get 410.
func (s *server) forget(ctx context.Context) error {
	if err := s.cp.CompactEtcd(ctx); err != nil {
		return err
	}
	if err := s.cp.RestartAPIServer(ctx); err != nil {
		return err
	}
	if err := s.look(ctx); err != nil { // a starting apiserver writes a few objects
		return err
	}
	return s.rest(ctx)
}

// contents are the expected content of every cache.
func (s *server) contents() map[string]peer.Content {
	all := map[string]peer.Content{}
	for name, versions := range s.versions {
		all[name] = peer.ContentOf(versions)
	}
	return all
}
