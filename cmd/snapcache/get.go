package main

import (
	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/cmd/snapcache/internal/kubectl"
	"github.com/snapcache/snapcache/localapi"
)

const getDescription = `Prints cached objects as kubectl get does, with its arguments, tables and messages,
from the running agent or, without one, from the database file. No kubectl, kubeconfig
or server is needed. Without -n and -A it reads namespace default, as kubectl does.

   snapcache get pods -n shop                  the pods of a namespace, as a table
   snapcache get po,svc -A -o wide             several types, in all namespaces
   snapcache get deploy/till cm/prices -n shop single objects
   snapcache get pods -A -l app=till --field-selector status.phase=Running
   snapcache get pods -A --sort-by .status.startTime
   snapcache get pods -n shop -w               and each change, until Ctrl-C
   snapcache get node edge-1 -o yaml
   snapcache get pods -A -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName
   snapcache get pods -A -o jsonpath='{.items[*].metadata.name}'
   snapcache get all -A --from 20260304T050607.000Z   from a snapshot

A type is a plural, singular or short name or a kind, with group if it needs one
(deployments.apps), or a category such as all. -o takes a table (default) or one of
wide, json, yaml, kyaml, name,
custom-columns=, jsonpath=, jsonpath-as-json=, jsonpath-file=, go-template=, go-template-file=.

Errors are worded as kubectl's and exit with 1. If a type is not cached, the error has
the types that are.`

func getCommand() *cli.Command {
	return &cli.Command{
		Name:        "get",
		Usage:       "print cached objects as kubectl get does",
		UsageText:   "snapcache get TYPE[,TYPE...] [NAME...] | TYPE/NAME... [-n NAMESPACE | -A] [-l SELECTOR] [-o FORMAT] [-w]",
		Description: getDescription,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: namespaceFlag, Aliases: []string{"n"}, Usage: "objects in this `NAMESPACE`; default: default"},
			allNamespacesFlag(),
			selectorFlag(),
			&cli.StringFlag{Name: "field-selector", Usage: "only objects whose fields match `SELECTOR`, as in kubectl"},
			&cli.StringFlag{Name: "sort-by", Usage: "sort by the field at this `JSONPATH`"},
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "print the objects and then each change, until interrupted"},
			&cli.BoolFlag{Name: "watch-only", Usage: "print only changes, until interrupted"},
			&cli.BoolFlag{Name: "output-watch-events", Usage: "with --watch: print the type of each change too"},
			&cli.StringFlag{Name: outputFlag, Aliases: []string{"o"}, Usage: "`FORMAT`: see above; default: a table"},
			&cli.BoolFlag{Name: "no-headers", Usage: "print tables without headers"},
			&cli.BoolFlag{Name: "show-labels", Usage: "print the labels as the last column"},
			&cli.StringSliceFlag{Name: "label-columns", Aliases: []string{"L"}, Usage: "print these `LABELS` as columns"},
			&cli.BoolFlag{Name: "show-kind", Usage: "print the type before each name"},
			&cli.BoolFlag{Name: "show-managed-fields", Usage: "keep the managed fields in JSON and YAML"},
			&cli.Int64Flag{Name: "chunk-size", Usage: "accepted as by kubectl, without effect: a cached list needs no chunks"},
			&cli.BoolFlag{Name: "ignore-not-found", Usage: "a missing object is no error"},
		}, readFlags()...),
		Action: get,
	}
}

func get(c *cli.Context) error {
	if !c.Args().Present() {
		return usagef("the type of the objects is missing: see %s --help", c.Command.HelpName)
	}
	opts := kubectl.Options{
		Namespace: c.String(namespaceFlag), AllNamespaces: c.Bool(allNamespaces),
		LabelSelector: c.String("selector"), FieldSelector: c.String("field-selector"), SortBy: c.String("sort-by"),
		Output: c.String(outputFlag), NoHeaders: c.Bool("no-headers"), ShowLabels: c.Bool("show-labels"), ShowKind: c.Bool("show-kind"),
		ShowManagedFields: c.Bool("show-managed-fields"), LabelColumns: c.StringSlice("label-columns"), IgnoreNotFound: c.Bool("ignore-not-found"),
		Watch: c.Bool("watch"), WatchOnly: c.Bool("watch-only"), OutputWatchEvents: c.Bool("output-watch-events"),
	}
	ctx, stop := interruptible(c.Context)
	defer stop()
	l, err := newLookup(c)
	if err != nil {
		return err
	}
	defer l.close()
	cfg, done, err := l.api(ctx)
	if err != nil {
		return err
	}
	defer done()
	if l.kept != nil && (opts.Watch || opts.WatchOnly) {
		return usagef("--watch: %w", localapi.ErrNoFollow)
	}
	return kubectl.Get(ctx, cfg, c.Args().Slice(), opts, c.App.Writer, c.App.ErrWriter)
}
