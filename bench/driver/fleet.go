package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snapcache/snapcache/bench/peer"
	"github.com/snapcache/snapcache/bench/result"
	"github.com/snapcache/snapcache/test/controlplane"
)

// fleetResources are cached by a node of a fleet: the needs of a service proxy, and configuration.
var fleetResources = []string{"endpointslices.discovery.k8s.io", "configmaps"}

// fleet starts all nodes of a fleet at once, first without stored data and then again.
func (d *Driver) fleet(ctx context.Context, s *server, f Fleet) ([]result.Fleet, error) {
	var resources []peer.Resource
	for _, name := range fleetResources {
		r, err := peer.ResourceOf(name)
		if err != nil {
			return nil, err
		}
		resources = append(resources, r)
	}
	names := []string{"fleet-library", "fleet-typed"}
	var all []result.Fleet
	for round := range f.Rounds {
		for _, scenario := range []string{First, Restart0} {
			_, marks, err := s.change(ctx, 0)
			if err != nil {
				return nil, err
			}
			for i := range names {
				r, err := d.fleetTurn(ctx, s, launch{
					name: names[(i+round)%len(names)], kubeconfig: s.kubeconfig, resources: resources, nodes: f.Nodes,
					read: firstOf(s, resources[0].Name), marks: marksOf(marks, resources),
				}, scenario)
				if err != nil {
					return nil, err
				}
				r.Round = round
				all = append(all, r)
			}
		}
	}
	return all, nil
}

func (d *Driver) fleetTurn(ctx context.Context, s *server, l launch, scenario string) (r result.Fleet, err error) {
	l.dir = filepath.Join(d.scratch, l.name)
	if scenario == First {
		if err := os.RemoveAll(l.dir); err != nil {
			return r, fmt.Errorf("forget what %s has stored: %w", l.name, err)
		}
	}
	before, err := s.cp.RequestTotals(ctx)
	if err != nil {
		return r, err
	}
	p, cost, err := d.measured(ctx, s, l)
	if err != nil {
		return r, fmt.Errorf("%s of %s: %w", scenario, l.name, err)
	}
	after, err := s.cp.RequestTotals(ctx)
	if err != nil {
		return r, err
	}
	if err := p.stop(); err != nil {
		return r, err
	}
	r = result.Fleet{Scenario: scenario, Peer: l.name, Nodes: l.nodes, Requests: requests(before, after, l.resources), Cost: cost}
	d.log("%-16s %-18s %d nodes caught up %6.2f s, %9d bytes, requests %v, cpu %6.2f s, server's %6.2f s",
		scenario, l.name, l.nodes, cost.CaughtUpSeconds, cost.Received, r.Requests, cost.CaughtUpCPU, cost.ServerCPU)
	return r, nil
}

// requests counts the requests for the resources and for the namespace that identifies the cluster.
// An open watch counts.
func requests(before, after controlplane.Totals, resources []peer.Resource) map[string]int {
	since := after.Since(before)
	n := map[string]int{}
	for _, verb := range []string{"GET", "LIST", "WATCH"} {
		for _, r := range resources {
			n[verb] += since.Count(verb, r.GVR.Resource)
		}
	}
	n["GET"] += since.Count("GET", "namespaces")
	for _, r := range resources {
		n["WATCH"] += after.Open(r.GVR.Resource) - before.Open(r.GVR.Resource)
	}
	return n
}

func firstOf(s *server, name string) peer.Mark {
	key := s.keys[name][0]
	return peer.Mark{Resource: name, Key: key, RV: s.versions[name][key]}
}

func marksOf(marks []peer.Mark, resources []peer.Resource) (some []peer.Mark) {
	for _, m := range marks {
		for _, r := range resources {
			if m.Resource == r.Name {
				some = append(some, m)
			}
		}
	}
	return some
}
