package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// fleets are many caches of one kind in one process, each with its own connection and store, as on
// its own node.
var fleets = map[string]func(ctx context.Context, s settings, d *delays) (*cached, error){
	"fleet-library": libraryOnBolt,
	"fleet-typed":   typed,
	"return-typed":  typedVersions,
	"return-spoke":  runSpoke,
	"restart-typed": restartTyped,
	"restart-whole": restartAgent(true),
	"restart-agent": restartAgent(false),
}

// runFleet starts all nodes at once. It sends an event when the last one has reached a mark.
func runFleet(ctx context.Context, s settings, start func(context.Context, settings, *delays) (*cached, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	if s.checkpoint, err = load(checkpointFile(s.state)); err != nil {
		return err
	}
	nodes := make([]*cached, s.nodes)
	var g errgroup.Group
	for i := range nodes {
		g.Go(func() error {
			mine := s
			mine.node = i
			mine.config = s.nodeConfig(i)
			mine.state = filepath.Join(s.state, fmt.Sprintf("node-%04d", i))
			if err := os.MkdirAll(mine.state, 0o700); err != nil {
				return err
			}
			c, err := start(ctx, mine, nil)
			if err != nil {
				return fmt.Errorf("node %d: %w", i, err)
			}
			nodes[i] = c
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := tellMarks(out, s, nodes...); err != nil {
		return err
	}
	if err := obey(together(nodes), nil, out); err != nil {
		return err
	}
	cancel()
	for _, c := range nodes {
		err = errors.Join(err, c.stop())
	}
	return err
}

// nodeConfig returns the connection of a node. It is its own: client-go shares one among clients with
// byte-identical certificates.
func (s settings) nodeConfig(node int) *rest.Config {
	c := rest.CopyConfig(s.config)
	if len(s.hubs) > 0 {
		c = rest.CopyConfig(s.hubs[node%len(s.hubs)])
	}
	c.CAData = append(slices.Clone(c.CAData), strings.Repeat("\n", node)...)
	if len(s.tokens) > 0 {
		c.BearerToken = s.tokens[node]
	}
	return c
}

// together returns the nodes of a fleet as one cache: the first, or one whose content differs from that. Of
// a resource of which each node has its own objects, it has the objects of all nodes.
func together(nodes []*cached) *cached {
	return &cached{
		versions: func() map[string]map[string]string {
			first := nodes[0].versions()
			for _, n := range nodes[1:] {
				all := n.versions()
				if own := n.own; own != "" {
					maps.Copy(first[own], all[own])
					all[own] = first[own]
				}
				if !maps.EqualFunc(first, all, maps.Equal) {
					return all
				}
			}
			return first
		},
		lists: func() (sum int) {
			for _, n := range nodes {
				if n.lists != nil {
					sum += n.lists()
				}
			}
			return sum
		},
	}
}
