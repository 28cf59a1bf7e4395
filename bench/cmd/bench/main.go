// Command bench runs the benchmarks side by side and writes the results: pages, charts and the
// raw figures. It writes them when the run is complete, and nothing before.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/snapcache/snapcache/bench/driver"
	"github.com/snapcache/snapcache/bench/report"
	"github.com/snapcache/snapcache/bench/result"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	name := flag.String("plan", "standard", "the `plan`: standard, full, library, library-100000, api, fleet, return or smoke")
	dir := flag.String("dir", "../.build/bench", "the `directory` for an incomplete run")
	out := flag.String("out", "../docs/bench", "the `directory` for the pages, charts and figures")
	command := flag.String("command", "go run ./cmd/bench", "the `command` that makes this run, for the pages")
	again := flag.Bool("again", false, "write the pages and charts again from side-by-side.json, "+
		"or with -plan api, fleet, return or library-100000 from the figures of its page, without a run")
	nodes := flag.Int("nodes", 0, "the `number` of nodes of plan fleet that follow hubs; 0 for the plan's")
	listing := flag.Int("listing", 0, "the `number` of nodes of plan fleet that list at the kube-apiserver; 0 for the plan's")
	hubs := flag.Int("hubs", 0, "the `number` of hubs of plan fleet; 0 for the plan's")
	note := flag.String("note", "", "a `sentence` about the conditions of the run, for the pages; with -again, too")
	before := flag.String("before", "", "a snapcache `program` of an earlier revision, which plan api compares too")
	flag.Parse()
	if *again {
		var r result.Run
		figures := "side-by-side.json"
		if *name == "api" || *name == "fleet" || *name == "return" {
			figures = *name + ".json"
		} else if *name == "library-100000" {
			figures = "library.json"
		}
		if err := result.Read(filepath.Join(*out, figures), &r); err != nil {
			return err
		}
		r.Note = cmp.Or(*note, r.Note)
		return report.Write(&r, *out)
	}
	plan, ok := driver.Plans[*name]
	if !ok {
		return fmt.Errorf("there is no plan %q", *name)
	}
	if r := plan.Stages[0].Return; r != nil {
		r.Nodes, r.Listing, r.Hubs = cmp.Or(*nodes, r.Nodes), cmp.Or(*listing, r.Listing), cmp.Or(*hubs, r.Hubs)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	began := time.Now()
	log := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	r, err := driver.Run(ctx, plan, driver.Options{Dir: *dir, Before: *before, Log: log})
	if err != nil {
		return err
	}
	r.Command, r.Note = *command, *note
	if err := report.Write(r, *out); err != nil {
		return err
	}
	log("written: %s", *out)
	// A complete run does not need its stages any more.
	return driver.Forget(plan, driver.Options{Dir: *dir}, r)
}
