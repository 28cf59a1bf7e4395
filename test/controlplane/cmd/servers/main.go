// Servers runs the tests that depend on the server against each version of the kube-apiserver, on etcd and on kine, and
// writes docs/compatibility.md.
//
//	servers -servers '1.31 kine' -short
//	servers -own.kubeconfig FILE -own.program FILE
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/snapcache/snapcache/test/controlplane"
)

func main() {
	names := flag.String("servers", "", "`names`: 1.31 is a version on etcd, 1.31-kine the same on kine, kine all on kine; empty for all servers")
	short := flag.Bool("short", false, "only the scenarios of a short run; writes no page")
	rest := flag.Bool("rest", false, "only the tests that have not passed on the server, such as after one was mended")
	mutate := flag.Bool("mutants", false, "instead, show that agents which need a thing that an old server lacks fail the tests there")
	kubeconfig := flag.String("own.kubeconfig", "", "instead, a kubeconfig `file` of a throw-away cluster, which is changed, killed and restored")
	program := flag.String("own.program", "", "the `program` that kills and restores that cluster's server: testdata/server.sh is an example")
	tests := flag.String("own.tests", "", "`names` of tests for it, such as e2e/TestServerRestart; empty for all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := func() error { return run(ctx, *names, *short, *rest) }
	switch {
	case *mutate:
		do = func() error { return runMutants(ctx) }
	case *kubeconfig != "":
		do = func() error { return runOwn(ctx, *kubeconfig, *program, strings.Fields(*tests)) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names string, short, rest bool) error {
	servers, err := controlplane.ParseServers(names)
	if names == "" {
		servers, err = controlplane.AllServers()
	}
	if err != nil {
		return err
	}
	root, err := controlplane.Root()
	if err != nil {
		return err
	}
	page := filepath.Join(root, "docs", "compatibility.md")
	all, err := readResults(page)
	if err != nil {
		return err
	}
	failed := 0
	for _, s := range servers {
		began := time.Now()
		// Here, so that no test is charged for it.
		if _, err := controlplane.BuildServer(ctx, os.Stderr, s); err != nil {
			return err
		}
		var before *result // whose tests are not run again
		if rest {
			before = all[s.String()]
		}
		r, err := test(ctx, root, s, short, before)
		if err != nil {
			return err
		}
		failed += len(r.Failed)
		fmt.Printf("%s: %d tests passed, %d failed, in %s\n", s, len(r.Passed), len(r.Failed), time.Since(began).Round(time.Second))
		if short {
			continue
		}
		all[s.String()] = r
		if err := all.write(page); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d tests failed", failed)
	}
	return nil
}
