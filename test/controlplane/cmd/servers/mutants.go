package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// mutant is an agent that needs a thing which not every server has. A test has to fail on a server without it,
// and to pass on one that has it.
type mutant struct {
	needs     string
	file      string // of the product
	old, new  string // text in it
	test      string
	fails, ok string // servers
}

var mutants = []mutant{
	{
		needs: "watches that begin with all objects (sendInitialEvents)",
		file:  "upstream/watch.go",
		old:   "\tctx, cancel := context.WithCancel(ctx)\n\tbody, mediaType",
		new: `	all, _, err := s.stream(ctx, func() (*rest.Request, error) {
		r, err := s.watchRequest("", time.Second)
		if err != nil {
			return nil, err
		}
		return r.Param("sendInitialEvents", "true").Param("resourceVersionMatch", "NotOlderThan"), nil
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", s, s.scoped(err))
	}
	_ = all.Close()
	ctx, cancel := context.WithCancel(ctx)
	body, mediaType`,
		test: "e2e/TestRestartMakesNoList", fails: "1.29", ok: "1.36",
	},
	{
		needs: "discovery in one document (apidiscovery.k8s.io/v2)",
		file:  "upstream/cluster.go",
		old:   "\tres := c.client.Get().AbsPath(path...).",
		new: `	discovery := c.client.Get().AbsPath("apis").SetHeader("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if err := discovery.MaxRetries(0).Do(ctx).Error(); err != nil {
		return nil, err
	}
	res := c.client.Get().AbsPath(path...).`,
		test: "e2e/TestRestartMakesNoList", fails: "1.29", ok: "1.36",
	},
	{
		needs: "a bookmark each minute",
		file:  "upstream/watch.go",
		old:   "\tfor {\n\t\te, err := r.next()\n",
		new: `	late := time.AfterFunc(75*time.Second, w.cancel)
	defer late.Stop()
	for {
		e, err := r.next()
		if e.Type == watch.Bookmark {
			late.Reset(75 * time.Second)
		}
`,
		test: "e2e/TestQuietWatch", fails: "1.36", ok: "1.36-kine", // etcd reports its progress each ten minutes, kine each 5 s
	},
}

// runMutants runs the test of each mutant on both of its servers.
func runMutants(ctx context.Context) error {
	root, err := controlplane.Root()
	if err != nil {
		return err
	}
	for _, m := range mutants {
		if err := m.run(ctx, root); err != nil {
			return err
		}
	}
	return nil
}

// run runs the test of a mutant on both of its servers.
func (m mutant) run(ctx context.Context, root string) error {
	overlay, remove, err := m.overlay(root)
	if err != nil {
		return err
	}
	defer remove()
	for _, name := range []string{m.ok, m.fails} {
		servers, err := controlplane.ParseServers(name)
		if err != nil {
			return err
		}
		if _, err := controlplane.BuildServer(ctx, os.Stderr, servers[0]); err != nil {
			return err
		}
		r := &result{Server: servers[0], Counted: map[string]int{}}
		folder, test, _ := strings.Cut(m.test, "/")
		if err := r.run(ctx, filepath.Join(root, "test"), folder, []string{test},
			controlplane.ServerEnv+"="+name, harness.OverlayEnv+"="+overlay); err != nil {
			return err
		}
		if failed := len(r.Failed) > 0; failed != (name == m.fails) {
			return fmt.Errorf("an agent that needs %s: failed on %s: %t", m.needs, name, failed)
		}
		fmt.Printf("an agent that needs %s: failed on %s, as it has to: %t\n", m.needs, name, name == m.fails)
	}
	return nil
}

// overlay writes the changed file, and returns the argument of "go build -overlay" for it.
func (m mutant) overlay(root string) (path string, remove func(), err error) {
	file := filepath.Join(root, filepath.FromSlash(m.file))
	source, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	if strings.Count(string(source), m.old) != 1 {
		return "", nil, fmt.Errorf("%s has not the text of the mutant that needs %s", m.file, m.needs)
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", nil, err
	}
	changed := filepath.Join(dir, filepath.Base(file))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err == nil {
		err = os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600)
	}
	if path = filepath.Join(dir, "overlay.json"); err == nil {
		err = os.WriteFile(path, replace, 0o600)
	}
	return path, func() { _ = os.RemoveAll(dir) }, err
}
