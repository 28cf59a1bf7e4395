package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapcache/snapcache/test/controlplane"
)

// runOwn runs tests on a server that the test did not start, one after the other, as each puts it back to its first state.
// It prints the tables of the page.
func runOwn(ctx context.Context, kubeconfig, program string, picked []string) error {
	root, err := controlplane.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "own-server-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := controlplane.SaveOwn(ctx, dir, kubeconfig, program); err != nil {
		return err
	}
	server, err := controlplane.OwnServer(ctx, dir)
	if err != nil {
		return err
	}
	r := &result{Server: server, When: time.Now().UTC().Truncate(time.Minute), Revision: revision(ctx, root), Counted: map[string]int{}}
	for folder, names := range testsOf(server, false) {
		for _, name := range names {
			if len(picked) > 0 && !slices.Contains(picked, folder+"/"+name) {
				continue
			}
			began := time.Now()
			if err := r.run(ctx, filepath.Join(root, "test"), folder, []string{name}, controlplane.OwnEnv+"="+dir); err != nil {
				return err
			}
			fmt.Printf("%s: %d passed, %d failed: %s\n", name, len(r.Passed), len(r.Failed), time.Since(began).Round(time.Second))
		}
	}
	fmt.Println(results{server.String(): r}.tables())
	if len(r.Failed) > 0 {
		return fmt.Errorf("%d tests failed", len(r.Failed))
	}
	return nil
}
