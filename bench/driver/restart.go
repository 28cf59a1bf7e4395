package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"syscall"
	"time"

	"github.com/snapcache/snapcache/bench/measure"
	"github.com/snapcache/snapcache/bench/peer"
	"github.com/snapcache/snapcache/bench/result"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/objects"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The ways of nodes whose server is restarted.
const (
	RestartInformers = "client-go's informers"
	RestartWhole     = "agents, whole lists"
	RestartAgents    = "agents"
)

var restartWays = []struct{ name, peer string }{
	{RestartInformers, "restart-typed"}, {RestartWhole, "restart-whole"}, {RestartAgents, "restart-agent"},
}

// RestartResources are cached by a node: its own pods, and all objects of the others.
var RestartResources = []string{"pods", "configmaps", "services", "endpointslices.discovery.k8s.io", "nodes"}

// seedNodes creates the objects of a cluster, besides the pods.
func (s *server) seedNodes(ctx context.Context, r Restart) error {
	s.resources = nil
	for _, name := range RestartResources {
		of, err := peer.ResourceOf(name)
		if err != nil {
			return err
		}
		s.resources = append(s.resources, of)
	}
	pods := 0
	if r.Kine { // it takes no writes but the apiserver's
		pods = r.Nodes * 24
	}
	return objects.Seed(ctx, s.cp, objects.SeedOptions{
		Pods: pods, ConfigMaps: r.ConfigMaps, Services: r.Services, EndpointSlices: r.Services, Nodes: r.Nodes, Seed: seed,
	})
}

// restarts measures the return of nodes after a restart of the apiserver, in each of the ways.
func (d *Driver) restarts(ctx context.Context, s *server, plan Restart) (all []result.Restart, err error) {
	for round := range plan.Rounds {
		for i := range restartWays {
			way := restartWays[(i+round)%len(restartWays)]
			r, err := d.restart(ctx, s, plan, way.peer)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
			r.Way, r.Round = way.name, round
			d.log("%-24s %d nodes current after %5.2f s, %9d bytes, requests %v, server's cpu %5.2f s, nodes' %5.2f s",
				way.name, r.Nodes, r.Seconds, r.Wire.Received, r.Requests, r.ServerCPU, r.CPU)
			all = append(all, r)
		}
	}
	return all, nil
}

// restart has nodes follow the apiserver, and stops them. Then the apiserver is restarted, and objects
// change. All nodes continue at once, with their connections gone, once it is idle, so that its cost
// is the cost of their return.
func (d *Driver) restart(ctx context.Context, s *server, plan Restart, name string) (r result.Restart, err error) {
	_, marks, err := s.change(ctx, 0)
	if err != nil {
		return r, err
	}
	p, err := startChild(d.binaries.peer, launch{
		name: name, dir: filepath.Join(d.scratch, "restart"), kubeconfig: s.kubeconfig, resources: s.resources,
		nodes: plan.Nodes, read: firstOf(s, RestartResources[1]), marks: marks[1:], // a pod is on one node only
	})
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.cmd.Process.Signal(syscall.SIGCONT), p.kill())
		}
	}()
	for _, event := range []string{peer.Read, peer.CaughtUp} {
		if _, err := p.await(ctx, event); err != nil {
			return r, err
		}
	}
	if err := d.awaitSame(ctx, s, p); err != nil {
		return r, err
	}
	before := p.lists
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return r, p.failed(err)
	}
	if r.Changed, err = s.startAgain(ctx, plan.Share); err != nil {
		return r, err
	}
	r.Nodes = plan.Nodes
	if err := d.comeBackAtOnce(ctx, s, p, &r); err != nil {
		return r, err
	}
	r.Lists = p.lists - before
	return r, p.stop()
}

// startAgain restarts the apiserver, changes objects, and waits until the apiserver is idle. A Secret,
// which no node follows, stands for the cluster's leases and events: they move the resourceVersion that
// the apiserver's history begins with past the nodes'.
func (s *server) startAgain(ctx context.Context, share float64) (changed int, err error) {
	client, err := kubernetes.NewForConfig(s.cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return 0, fmt.Errorf("control plane: %w", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "unseen-"}}
	if _, err := client.CoreV1().Secrets(metav1.NamespaceDefault).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("control plane: %w", err)
	}
	if err := s.cp.KillAPIServer(ctx); err != nil {
		return 0, err
	}
	if err := s.cp.StartAPIServer(ctx); err != nil {
		return 0, err
	}
	if changed, _, err = s.change(ctx, share); err != nil {
		return 0, err
	}
	if err := s.rest(ctx); err != nil {
		return 0, err
	}
	return changed, s.look(ctx) // a starting apiserver writes a few objects
}

// comeBackAtOnce lets the nodes continue, and measures until all are current and have settled.
func (d *Driver) comeBackAtOnce(ctx context.Context, s *server, p *child, r *result.Restart) error {
	wire, err := s.network.Traffic()
	if err != nil {
		return err
	}
	totals, err := s.cp.RequestTotals(ctx)
	if err != nil {
		return err
	}
	server, err := s.cpu()
	if err != nil {
		return err
	}
	nodes, err := measure.CPU(p.pid())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return p.failed(err)
	}
	if err := d.awaitSame(ctx, s, p); err != nil {
		return err
	}
	if err := s.awaitWatches(ctx, totals, r.Nodes); err != nil {
		return p.failed(err)
	}
	r.Seconds = time.Since(began).Seconds()
	time.Sleep(d.plan.Settle)
	used, err := s.cpu()
	if err != nil {
		return err
	}
	r.ServerCPU = used - server - s.idle*time.Since(began).Seconds()
	after, err := measure.CPU(p.pid())
	if err != nil {
		return err
	}
	r.CPU = (after - nodes).Seconds()
	t, err := s.network.Traffic()
	if err != nil {
		return err
	}
	r.Wire = t.Since(wire)
	now, err := s.cp.RequestTotals(ctx)
	if err != nil {
		return err
	}
	r.Requests = requests(totals, now, s.resources)
	return nil
}

// awaitWatches waits until nodes have a watch of each resource open.
func (s *server) awaitWatches(ctx context.Context, before controlplane.Totals, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		now, err := s.cp.RequestTotals(ctx)
		if err != nil {
			return err
		}
		open := 0
		for _, r := range s.resources {
			open += now.Open(r.GVR.Resource) - before.Open(r.GVR.Resource)
		}
		if open >= nodes*len(s.resources) {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d watches: %w", open, nodes*len(s.resources), ctx.Err())
		}
	}
}

// awaitSame waits until all nodes have the objects of the server.
func (d *Driver) awaitSame(ctx context.Context, s *server, p *child) error {
	const look = 250 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		got, err := p.contents(ctx)
		if err != nil {
			return err
		}
		if maps.Equal(got, s.contents()) {
			return nil
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return p.failed(fmt.Errorf("its objects differ from the server's: %v, not %v", got, s.contents()))
		}
	}
}
