package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
)

const changesDescription = `Prints what was added, modified and deleted since then, across restarts of the
agent, from the running agent or, without one, from the database file. Of several
changes of one object it prints the newest; objects that were added and deleted
since then are left out.

   snapcache changes pods --since 1h                  received in the last hour
   snapcache changes pods --since 48211 -n shop       all since that resourceVersion
   snapcache changes pods till-1 till-2 --since 1h    of two of them
   snapcache changes pods --since 2026-01-02T15:04:05Z
   snapcache changes pods --since 10m --follow        ... and later changes, until Ctrl-C
   snapcache changes pods --since 6h --from 20260304T050607.000Z   from a snapshot
   snapcache changes configmaps --since 48211 -o json | jq -r 'select(.type == "DELETED").name'

Times are those at which the cache received a change, in whole seconds.
snapcache inspect shows a collection's resourceVersion, and the beginning of its
history (see history.retention and history.maxSize in the configuration).

-o json prints one JSON object per line, as kubectl get --watch
--output-watch-events does: type (ADDED, MODIFIED or DELETED) and object, which for
DELETED is the last state, plus resourceVersion, time, namespace and name. The line
{"type":"BOOKMARK","resourceVersion":"48300"} comes last, with --follow after each
batch: all changes up to there were printed, and --since 48300 continues. A change
may be printed again then. Without -o json that number goes to standard error.

If the agent first listed the resource later than a duration or time, a line on
standard error has the beginning, and all changes since are printed.

Exits with 5 if --since is before the history otherwise, or if the history that was
followed is gone: a program that keeps a copy then has to read everything again
(snapcache dump). Exits with 2 if the agent has store.type memory, which keeps no
history, with 3 if the resource was never synced, and with 4, without a BOOKMARK, if
stored records are corrupt; the others are printed.`

const sinceHelp = "a resourceVersion (snapcache inspect shows them), a duration such as 30m, or a time such as 2026-01-02T15:04:05Z"

func changesCommand() *cli.Command {
	return &cli.Command{
		Name:        "changes",
		Usage:       "what was added, modified and deleted",
		UsageText:   "snapcache changes RESOURCE [NAME...] --since RV|DURATION|TIME [-n NAMESPACE] [--follow] [-o table|json]",
		Description: changesDescription,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "since", Usage: "changes after `RV`, or within a duration, or since a time"},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "continue with later changes, until interrupted; needs the running agent"},
			objectNamespaceFlag(),
			allNamespacesFlag(),
			newOutputFlag("changes"),
		}, readFlags()...),
		Action: changes,
	}
}

func changes(c *cli.Context) error {
	query, err := changeQuery(c, time.Now())
	if err != nil {
		return err
	}
	ctx := c.Context
	if query.Follow {
		interrupted, stop := interruptible(c.Context)
		defer stop()
		ctx = interrupted
	}
	printer := newChangePrinter(c.String(outputFlag), c.App.Writer, query.Follow)
	printer.names = c.Args().Tail()
	err = printChanges(ctx, c, query, printer)
	if query.Follow && ctx.Err() != nil {
		err = nil // the normal end of --follow
	}
	if err != nil {
		return err
	}
	if printer.at != "" {
		_, err = fmt.Fprintf(c.App.ErrWriter, "snapcache: to continue from here: --since %s\n", printer.at)
	}
	return err
}

func changeQuery(c *cli.Context, now time.Time) (localapi.ChangeQuery, error) {
	q := localapi.ChangeQuery{
		Namespace: namespaceOf(c), Objects: c.String(outputFlag) == "json", Follow: c.Bool("follow"),
	}
	since := c.String("since")
	if !c.Args().Present() {
		return q, usagef("RESOURCE is missing: see %s --help", c.Command.HelpName)
	}
	if since == "" {
		return q, usagef("--since is needed: %s", sinceHelp)
	}
	if object.IsDecimalRV(since) {
		q.Since = since
		return q, nil
	}
	if d, err := time.ParseDuration(since); err == nil {
		q.SinceTime = now.Add(-d)
	} else if q.SinceTime, err = time.Parse(time.RFC3339, since); err != nil {
		return q, usagef("--since %q: give %s", since, sinceHelp)
	}
	if q.SinceTime.After(now) {
		return q, usagef("--since %q is in the future: give %s", since, sinceHelp)
	}
	return q, nil
}

func printChanges(ctx context.Context, c *cli.Context, query localapi.ChangeQuery, printer *changePrinter) error {
	src, status, done, err := openCache(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	resource := c.Args().First()
	readable, _, err := readableCollections(status, resource, query.Namespace)
	if err != nil {
		return err
	}
	if len(readable) > 1 {
		return usagef("%s is cached in parts, each with its own history: choose one: %s", resource, cachedList(readable))
	}
	if h := readable[0].HistorySince; h.First && h.Time.After(query.SinceTime) && !query.SinceTime.IsZero() {
		begins := h.Time.UTC().Format(time.RFC3339)
		_, err = fmt.Fprintf(c.App.ErrWriter, "snapcache: %s: the history begins at %s, with the first list\n", readable[0].ID, begins)
		if err != nil {
			return err
		}
	}
	err = src.Changes(ctx, readable[0].ID, query, printer.change)
	damage, ok := errors.AsType[*localapi.CorruptRecordsError](err)
	if err != nil && !ok {
		return err
	}
	return errors.Join(printer.flush(), corrupt(damage))
}

type changePrinter struct {
	w      io.Writer
	follow bool          // flush w, if it has a buffer, after each batch
	lines  *json.Encoder // nil for a table
	table  *table        // nil for lines
	names  []string      // of the objects; empty for all

	at string // resourceVersion to continue from; empty if the output contains it
}

func newChangePrinter(format string, w io.Writer, follow bool) *changePrinter {
	p := &changePrinter{w: w, follow: follow}
	if format == "json" {
		p.lines = json.NewEncoder(w)
		p.lines.SetEscapeHTML(false)
	} else {
		p.table = newTable(w, "TIME", "EVENT", "NAMESPACE", "NAME", ">RV")
	}
	return p
}

func (p *changePrinter) change(c localapi.Change) (err error) {
	switch {
	case c.Type != localapi.Bookmark && len(p.names) > 0 && !slices.Contains(p.names, c.Name):
	case p.lines != nil:
		err = p.lines.Encode(c)
	case c.Type == localapi.Bookmark:
		p.at = c.ResourceVersion
	default:
		p.table.row(c.Time.Local().Format(time.DateTime), string(c.Type), c.Namespace, c.Name, c.ResourceVersion)
		err = p.table.err
	}
	if err == nil && c.Type == localapi.Bookmark {
		err = p.flush()
	}
	return err
}

func (p *changePrinter) flush() error {
	if p.table != nil {
		if err := p.table.flush(); err != nil {
			return err
		}
	}
	if b, ok := p.w.(interface{ Flush() error }); ok && p.follow {
		return b.Flush()
	}
	return nil
}
