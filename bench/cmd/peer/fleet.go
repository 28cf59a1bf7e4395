package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
}

// runFleet starts all nodes at once. It sends an event when the last one has reached a mark.
func runFleet(ctx context.Context, s settings, start func(context.Context, settings, *delays) (*cached, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes := make([]*cached, s.nodes)
	var g errgroup.Group
	for i := range nodes {
		g.Go(func() error {
			mine := s
			mine.config = rest.CopyConfig(s.config)
			// Its own connection: client-go shares one among clients with byte-identical
			// certificates.
			mine.config.CAData = append(slices.Clone(s.config.CAData), strings.Repeat("\n", i)...)
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
	if err := obey(nodes[0], nil, out); err != nil {
		return err
	}
	cancel()
	var err error
	for _, c := range nodes {
		err = errors.Join(err, c.stop())
	}
	return err
}
