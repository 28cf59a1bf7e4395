package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/result"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/test/controlplane"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// API compares the Kubernetes API of an agent with its kube-apiserver's.
type API struct {
	Idle    int     // rounds of agents without clients
	Rounds  int     // of all else
	Gets    int     // in a row
	Watches int     // about as many, at once
	Link    float64 // bits a second to the kube-apiserver, for the start of an informer

	// Rates of changes: without clients, if each watch is of one namespace, and if each is of all pods.
	Alone, Few, All Rate
}

// Rate is a number of changes a second, for some time.
type Rate struct {
	PerSecond float64
	Duration  time.Duration
}

// The servers that are compared, and the agents without clients.
const (
	Server      = "kube-apiserver"
	Floor       = "net/http alone" // with the agent's TLS and HTTP/2, and the same bytes
	FarServer   = "kube-apiserver behind the link"
	AgentAPI    = "agent, API on"  // without clients
	AgentNoAPI  = "agent, API off" // as in every other plan
	AgentBefore = "agent before"   // of another binary, see Options.Before
)

// The kinds of watches.
const (
	FewWatches = "watches of a namespace"
	AllWatches = "watches of all pods"
)

// The figures that describe the watches of a kind, which are the same for each server.
const (
	EachServer = "each server"
	Watches    = ": watches"
	Changes    = ": changes a second"
	Reached    = ": watches that a change reaches"
)

// apiSide is one of the two servers.
type apiSide struct {
	name   string
	pid    int
	idle   float64 // seconds of CPU a second
	config *rest.Config
	http   *http.Client
	socket bool // http uses its unix socket
}

// figures collects the figures of a comparison.
type figures struct {
	all []result.Figure
	log func(format string, args ...any)
}

func (f *figures) add(what, of, unit string, value float64) {
	f.log("%s, %s: %.6g %s", what, of, value, unit)
	for i := range f.all {
		if x := &f.all[i]; x.What == what && x.Of == of {
			x.Values = append(x.Values, value)
			return
		}
	}
	f.all = append(f.all, result.Figure{What: what, Of: of, Unit: unit, Values: []float64{value}})
}

// api measures one comparison.
func (d *Driver) api(ctx context.Context, s *server, plan API) (_ []result.Figure, err error) {
	f := figures{log: d.log}
	if err := d.apiIdle(ctx, s, plan.Idle, plan.Alone, &f); err != nil {
		return nil, err
	}
	agent, p, err := d.startAPI(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	direct, err := newSide(Server, s.cp.APIServerPID(), s.idle, s.cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return nil, err
	}
	sides := []*apiSide{agent, direct}
	for _, w := range []struct {
		name string
		one  bool
		rate Rate
	}{{FewWatches, true, plan.Few}, {AllWatches, false, plan.All}} {
		if err := d.apiWatches(ctx, s, sides, w.name, plan, w.one, w.rate, &f); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	for range plan.Rounds {
		for _, x := range []struct {
			*apiSide
			form, accept string
		}{{agent, "JSON", "application/json"}, {direct, "JSON", "application/json"}, {direct, "protobuf", "application/vnd.kubernetes.protobuf"}} {
			if err := x.list(ctx, x.form, x.accept, &f); err != nil {
				return nil, fmt.Errorf("list of %s: %w", x.name, err)
			}
		}
	}
	if err := d.apiGets(ctx, s, sides, plan, &f); err != nil {
		return nil, err
	}
	err = apiInformers(ctx, agent, direct, plan.Link, &f)
	return f.all, err
}

// apiDir is the directory of the agent with the Kubernetes API.
func (d *Driver) apiDir() string { return filepath.Join(d.scratch, "api") }

// startAPI starts an agent with the Kubernetes API, and waits until it is caught up.
func (d *Driver) startAPI(ctx context.Context, s *server) (*apiSide, subject, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	dir := d.apiDir()
	p, _, err := d.apiAgent(ctx, s, launch{name: Agent, dir: dir, api: address})
	if err != nil {
		return nil, nil, err
	}
	ca, token, err := serving.Read(serving.Dir(filepath.Join(dir, "cache.db")))
	if err != nil {
		return nil, nil, errors.Join(err, p.kill())
	}
	x, err := newSide(Agent, p.pid(), 0, &rest.Config{Host: "https://" + address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	if err != nil {
		return nil, nil, errors.Join(err, p.kill())
	}
	return x, p, nil
}

// apiAgent starts an agent of the stage's pods without stored data.
func (d *Driver) apiAgent(ctx context.Context, s *server, l launch) (subject, result.Cost, error) {
	_, marks, err := s.change(ctx, 0)
	if err != nil {
		return nil, result.Cost{}, err
	}
	l.kubeconfig, l.resources, l.read, l.marks = s.kubeconfig, s.resources, s.readMark(), marks
	return d.measured(ctx, s, l)
}

// freeAddress returns a loopback address that is free now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("free address: %w", err)
	}
	return l.Addr().String(), l.Close()
}

func newSide(name string, pid int, idle float64, config *rest.Config) (*apiSide, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.DisableCompression = -1, true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &apiSide{name: name, pid: pid, idle: idle, config: config, http: client}, nil
}

// get sends a request whose answer the caller closes.
func (x *apiSide) get(ctx context.Context, path, accept string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, x.config.Host+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	answer, err := x.http.Do(r)
	if err == nil && answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, answer.Status)
	}
	return answer, err
}

// cpu returns the CPU that fn takes of the server, in seconds, without its idle load.
func (x *apiSide) cpu(fn func() error) (float64, error) {
	began := time.Now()
	before, err := measure.CPU(x.pid)
	if err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	after, err := measure.CPU(x.pid)
	return (after - before).Seconds() - x.idle*time.Since(began).Seconds(), err
}

func (x *apiSide) anon() (int64, error) {
	m, err := measure.ReadMemory(x.pid)
	return m.Anon, err
}

// list reads all pods from the server's cache.
func (x *apiSide) list(ctx context.Context, form, accept string, f *figures) error {
	before, err := x.anon()
	if err != nil {
		return err
	}
	peak, stop := before, make(chan struct{})
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		for {
			if now, err := x.anon(); err == nil {
				peak = max(peak, now)
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	var first, whole time.Duration
	var n int64
	cpu, err := x.cpu(func() error {
		began := time.Now()
		answer, err := x.get(ctx, "/api/v1/pods?resourceVersion=0", accept)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if _, err := io.ReadFull(answer.Body, make([]byte, 1)); err != nil {
			return err
		}
		first = time.Since(began)
		n, err = io.Copy(io.Discard, answer.Body)
		whole = time.Since(began)
		return err
	})
	close(stop)
	<-polled
	if err != nil {
		return err
	}
	what := "list, " + form
	f.add(what+": CPU", x.name, "s", cpu)
	f.add(what+": first byte", x.name, "s", first.Seconds())
	f.add(what+": last byte", x.name, "s", whole.Seconds())
	f.add(what+": memory grows by", x.name, "B", float64(peak-before))
	f.add(what+": size", x.name, "B", float64(n))
	return nil
}

// apiInformers measures the starts of client-go's informer of all pods: at the agent, at the
// kube-apiserver, and at the kube-apiserver behind a link.
func apiInformers(ctx context.Context, agent, direct *apiSide, bits float64, f *figures) error {
	u, err := url.Parse(direct.config.Host)
	if err != nil {
		return err
	}
	k, err := newLink(u.Host, bits)
	if err != nil {
		return err
	}
	far := rest.CopyConfig(direct.config)
	far.Host = "https://" + k.address()
	for _, x := range []struct {
		of     string
		config *rest.Config
	}{{Agent, agent.config}, {Server, direct.config}, {FarServer, far}} {
		took, err := informerStart(ctx, x.config)
		if err != nil {
			return fmt.Errorf("informer of %s: %w", x.of, err)
		}
		f.add("an informer's start", x.of, "s", took.Seconds())
	}
	return k.close()
}

func informerStart(ctx context.Context, config *rest.Config) (time.Duration, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = false // as every client
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.Dial = (&net.Dialer{}).DialContext // not a connection of before
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	defer httpClient.CloseIdleConnections()
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	began := time.Now()
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		informer.RunWithContext(ctx)
	}()
	for !informer.HasSynced() {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	took := time.Since(began)
	cancel()
	<-ran
	return took, nil
}
