// Command bench runs the benchmarks side by side and writes the results: pages, charts and the
// raw figures. It writes them when the run is complete, and nothing before.
package main

import (
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
	name := flag.String("plan", "standard", "the `plan`: standard, full, library, api or smoke")
	dir := flag.String("dir", "../.build/bench", "the `directory` for an incomplete run")
	out := flag.String("out", "../docs/bench", "the `directory` for the pages, charts and figures")
	command := flag.String("command", "go run ./cmd/bench", "the `command` that makes this run, for the pages")
	again := flag.Bool("again", false, "write the pages and charts again from side-by-side.json, or with -plan api from api.json, without a run")
	before := flag.String("before", "", "a snapcache `program` of an earlier revision, which plan api compares too")
	flag.Parse()
	if *again {
		var r result.Run
		figures := "side-by-side.json"
		if *name == "api" {
			figures = "api.json"
		}
		if err := result.Read(filepath.Join(*out, figures), &r); err != nil {
			return err
		}
		return report.Write(&r, *out)
	}
	plan, ok := driver.Plans[*name]
	if !ok {
		return fmt.Errorf("there is no plan %q", *name)
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
	r.Command = *command
	if err := report.Write(r, *out); err != nil {
		return err
	}
	log("written: %s", *out)
	// A complete run does not need its stages any more.
	return driver.Forget(plan, driver.Options{Dir: *dir}, r)
}
