package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/cmd/snapcache/internal/clustercheck"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/upstream"
)

const clusterFlagName = "cluster"

func clusterFlag() cli.Flag {
	return &cli.BoolFlag{Name: clusterFlagName, Usage: "also measure what the server offers, reading only"}
}

// checkCluster is config check --cluster. With two servers it measures that of the fallback context, because the other
// one may be an agent.
func checkCluster(c *cli.Context, cfg *config.AgentConfiguration) error {
	connection, err := upstream.LoadConfig(cfg.Kubeconfig, cfg.FallbackContext)
	if err != nil {
		return withCode(exitUsage, err)
	}
	ctx, progress, done := newProgress(c.Context)
	defer done()
	opts := clustercheck.Options{Progress: progress.printf}
	for _, r := range cfg.Resources {
		for _, namespace := range r.Scopes() {
			opts.Scopes = append(opts.Scopes, clustercheck.Scope{
				ID: r.Resource.CollectionID(namespace), Resource: r.Resource.Resource, Version: r.Resource.Version,
				Group: r.Resource.Group, Namespace: namespace, LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector,
			})
		}
	}
	report, err := clustercheck.Run(ctx, connection, opts)
	switch {
	case ctx.Err() != nil:
		return errors.New("stopped before the end: nothing is reported")
	case err != nil:
		return err
	}
	_, problem := askServer(ctx, cfg, cfg.Kubeconfig)
	if problem != nil {
		report.Problems = strings.Split(problem.Error(), "\n")
	} else if failed := report.Unmeasured(); len(failed) > 0 {
		problem = fmt.Errorf("not measured to the end: %s: see PROBLEM", strings.Join(failed, ", "))
	}
	progress.clear()
	return errors.Join(output(c, c.App.Writer, report, func() error { return writeReport(c.App.Writer, report) }), problem)
}

func writeReport(w io.Writer, r *clustercheck.Report) error {
	clock := r.Clock.Problem
	if clock == "" {
		clock = fmt.Sprintf("%+.2f s beside this machine's, ±%.2f s", r.Clock.AheadSeconds, r.Clock.ErrorSeconds)
	}
	err := writeStrings(w,
		"server: ", r.Server, ", ", r.Version, "\n",
		fmt.Sprintf("features: watch list %s, aggregated discovery %s, consistent reads from its cache %s\n",
			r.Features.WatchList, r.Features.AggregatedDiscovery, r.Features.ConsistentReads),
		"clock: ", clock, "\n",
		fmt.Sprintf("latency: %s, at worst %s in %d requests\n", seconds(r.Latency.MedianSeconds), seconds(r.Latency.WorstSeconds), r.Latency.Requests),
		"a restart that resumes: ", costLine(r.Resume), "\n",
		"a restart that lists: ", costLine(r.List), "\n\n")
	if err != nil {
		return err
	}
	t := newTable(w, "COLLECTION", ">OBJECTS", ">PAGES", ">BYTES", ">UNPACKED", ">LIST", ">RESUME", "BOOKMARK", "RESUMES FROM", "PROBLEM")
	for _, c := range r.Collections {
		if c.Problem != "" {
			t.row(c.Collection, "", "", "", "", "", "", "", "", c.Problem)
			continue
		}
		bookmark := "after " + seconds(c.Bookmark.AfterSeconds)
		switch {
		case c.Bookmark.NotDue:
			bookmark = "nothing changed"
		case !c.Bookmark.Arrived:
			bookmark = "none in " + seconds(c.Bookmark.AfterSeconds)
		}
		t.row(c.Collection, humanCount(c.Objects), humanCount(c.List.Requests), humanBytes(c.List.Bytes), humanBytes(c.List.UnpackedBytes),
			seconds(c.List.Seconds), seconds(c.Resume.Seconds), bookmark, windowText(c.Window), c.Bookmark.Problem)
	}
	if err := t.flush(); err != nil {
		return err
	}
	return writeLines(w, r.Notes...)
}

func costLine(c clustercheck.Cost) string {
	return fmt.Sprintf("%s in %s, %s", humanBytes(c.Bytes), plural(c.Requests, "request", "requests"), seconds(c.Seconds))
}

func windowText(w clustercheck.Window) string {
	switch {
	case !w.Known:
		return ""
	case w.ResumesFrom == "" && w.Expired == "":
		return "no object"
	case w.ResumesFrom == "":
		return "after " + w.Expired
	}
	text := w.ResumesFrom
	if w.Changed != nil {
		text += ", of " + w.Changed.Local().Format(time.DateTime)
	}
	if w.Expired == "" {
		text += ", the oldest"
	}
	return text
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d > time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}
