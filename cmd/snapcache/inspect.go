package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
)

const inspectDescription = `Shows the cache's internals, through the running agent or, without one, from the
database file: the collections with their checkpoints, an index, or keys.

   snapcache inspect                                collections: checkpoint, freshness, count, size, verdict, history
   snapcache inspect --index namespace              every namespace of each collection
   snapcache inspect pods --index namespace         ... of pods only
   snapcache inspect pods --index namespace shop    the keys of a namespace
   snapcache inspect pods --index node edge-1       the keys under a value of a configured index
   snapcache inspect pods --keys                    all keys with resourceVersion and size
   snapcache inspect pods till-1 till-2             those of two names, in any namespace
   snapcache inspect --db copy-of-cache.db          only this file
   snapcache inspect --from 20260304T050607.000Z    a snapshot

Sizes are those of the objects' JSON; in the file they are compressed. Exits with 3
if a requested resource was never synced, and with 4 if stored records are corrupt;
the others are printed.`

func inspectCommand() *cli.Command {
	return &cli.Command{
		Name:        "inspect",
		Usage:       "show checkpoints, indexes and keys of the cache",
		UsageText:   "snapcache inspect [RESOURCE [NAME...]] [--index NAME [VALUE]] [--keys] [-o table|json]",
		Description: inspectDescription,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: indexFlag, Usage: "the values of index `NAME`, or with a VALUE after it the keys with that value"},
			&cli.StringFlag{Name: valueFlag, Hidden: true}, // set by arrange
			&cli.BoolFlag{Name: "keys", Usage: "print the keys"},
			allNamespacesFlag(),
			newOutputFlag("inspect"),
		}, readFlags()...),
		Action: inspect,
	}
}

func inspect(c *cli.Context) error {
	resource, index := c.Args().First(), c.String(indexFlag)
	in := inspection{w: c.App.Writer, json: c.String(outputFlag) == "json", names: c.Args().Tail()}
	in.absent = sets.New(in.names...)
	keys := c.Bool("keys") || len(in.names) > 0
	query := localapi.KeyQuery{Index: index, Value: c.String(valueFlag)}
	switch {
	case c.IsSet(indexFlag) && index == "":
		return usagef("--index needs the name of an index, such as %s", store.NamespaceIndex)
	case c.IsSet(valueFlag) && index == "":
		return usagef("--value needs an --index")
	case keys && index != "" && !c.IsSet(valueFlag):
		return usagef("keys of index %s: give a value after --index %s", index, index)
	}
	src, status, done, err := openCache(c.Context, c)
	if err != nil {
		return err
	}
	defer done()
	if index == "" && !keys {
		return inspectCollections(c, status, resource)
	}
	readable, missing, err := readableCollections(status, resource, "")
	if err != nil {
		return err
	}
	if resource == "" && index != "" {
		if readable, err = withIndex(readable, index); err != nil {
			return err
		}
	}
	in.src, in.collections = src, readable
	if c.IsSet(valueFlag) || keys {
		err = in.keys(c.Context, query)
	} else {
		err = in.index(c.Context, index)
	}
	if err != nil {
		return err
	}
	return errors.Join(corrupt(in.damage), notSynced(missing), notFound(resource, sets.List(in.absent)))
}

// withIndex drops the collections that don't have an index.
func withIndex(collections []localapi.Collection, index string) ([]localapi.Collection, error) {
	var found []localapi.Collection
	have := []string{store.NamespaceIndex}
	for _, c := range collections {
		names := append(slices.Clone(c.Indexes), c.Building...)
		have = append(have, names...)
		if index == store.NamespaceIndex || slices.Contains(names, index) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		slices.Sort(have)
		return nil, usagef("%w: %q; there are %s", store.ErrNoIndex, index, strings.Join(slices.Compact(have), ", "))
	}
	return found, nil
}

// inspectCollections prints the collections with their checkpoints.
func inspectCollections(c *cli.Context, status *localapi.Status, resource string) error {
	selected, err := selectCollections(status.Collections, resource)
	if err != nil {
		return err
	}
	status.Collections = selected
	if c.String(outputFlag) == "json" {
		return writeJSON(c.App.Writer, status)
	}
	if len(selected) == 0 {
		return nothingCached()
	}
	t := newTable(c.App.Writer, "COLLECTION", "VERSION", ">OBJECTS", ">SIZE", ">RV", "FRESHNESS", "VERDICT", "LAST LIST", "HISTORY SINCE", "INDEXES")
	for _, x := range selected {
		objects, size := sizes(x)
		t.row(x.ID, x.Version, objects, size, x.ResourceVersion, x.Freshness(), x.Verdict, listed(x), historySince(x), indexNames(x))
	}
	if err := t.flush(); err != nil {
		return err
	}
	return writeLines(c.App.Writer, append(alarmLines(status), storeLine(status.Store))...)
}

// indexNames joins the names of a collection's indexes for a table cell.
func indexNames(c localapi.Collection) string {
	names := slices.Clone(c.Indexes)
	for _, name := range c.Building {
		names = append(names, name+" (building)")
	}
	return strings.Join(names, ",")
}
