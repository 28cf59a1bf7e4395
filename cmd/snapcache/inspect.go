package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
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

func indexNames(c localapi.Collection) string {
	names := slices.Clone(c.Indexes)
	for _, name := range c.Building {
		names = append(names, name+" (building)")
	}
	return strings.Join(names, ",")
}

// inspection prints indexes and keys of collections. It collects corruption and continues.
type inspection struct {
	src         localapi.Source
	w           io.Writer
	json        bool
	collections []localapi.Collection
	names       []string                      // of the objects; empty for all
	absent      sets.Set[string]              // the names that were not found so far
	damage      *localapi.CorruptRecordsError // the corruption found so far, nil for none
}

// noDamage records corruption and returns every other error.
func (in *inspection) noDamage(err error) error {
	if errors.As(err, &in.damage) {
		return nil
	}
	return err
}

type indexAnswer struct {
	Collection string                `json:"collection"`
	Index      string                `json:"index"`
	Values     []localapi.IndexValue `json:"values"`
}

// total is the name of the line with the sums. It can't be a namespace, which has no capitals.
const total = "TOTAL"

func (in *inspection) index(ctx context.Context, index string) error {
	values, err := in.src.Index(ctx, ids(in.collections), index)
	if err := in.noDamage(err); err != nil {
		return err
	}
	if in.json {
		answers := []indexAnswer{}
		for i, c := range in.collections {
			answers = append(answers, indexAnswer{c.ID, index, values[i]})
		}
		return writeJSON(in.w, answers)
	}
	head := "VALUE OF " + index
	if index == store.NamespaceIndex {
		head = "NAMESPACE"
	}
	t := newTable(in.w, "COLLECTION", head, ">OBJECTS", ">SIZE")
	var all localapi.IndexValue
	for i, c := range in.collections {
		var sum localapi.IndexValue
		for _, v := range values[i] {
			value := v.Value
			if value == "" && index == store.NamespaceIndex {
				value = "(none)"
			}
			t.row(c.ID, value, humanCount(v.Objects), humanBytes(v.Bytes))
			sum.Objects, sum.Bytes = sum.Objects+v.Objects, sum.Bytes+v.Bytes
		}
		t.row(c.ID, total, humanCount(sum.Objects), humanBytes(sum.Bytes))
		all.Objects, all.Bytes = all.Objects+sum.Objects, all.Bytes+sum.Bytes
	}
	if len(in.collections) > 1 {
		t.row(total, "", humanCount(all.Objects), humanBytes(all.Bytes))
	}
	return t.flush()
}

// keys prints keys one by one: they may not fit in memory.
func (in *inspection) keys(ctx context.Context, query localapi.KeyQuery) error {
	if in.json {
		return in.keysJSON(ctx, query)
	}
	t := newTable(in.w, "COLLECTION", "KEY", ">RV", ">BYTES")
	err := in.eachKey(ctx, query, func(collection string, k localapi.Key) error {
		t.row(collection, k.Key, k.ResourceVersion, strconv.Itoa(k.Bytes))
		return t.err
	})
	if err := in.noDamage(err); err != nil {
		return err
	}
	return t.flush()
}

func (in *inspection) eachKey(ctx context.Context, query localapi.KeyQuery, fn func(collection string, k localapi.Key) error) error {
	return in.src.Keys(ctx, ids(in.collections), query, func(collection string, k localapi.Key) error {
		name := k.Key[strings.LastIndexByte(k.Key, '/')+1:]
		if len(in.names) > 0 && !slices.Contains(in.names, name) {
			return nil
		}
		in.absent.Delete(name)
		return fn(collection, k)
	})
}

// keysJSON prints [{"collection": ID, "keys": [KEY, ...]}, ...], one key per line.
func (in *inspection) keysJSON(ctx context.Context, query localapi.KeyQuery) error {
	begun, end, separator := 0, "[", ""
	// begin returns the beginning of a collection's list, after the empty lists of collections before it.
	begin := func(id string) (text string) {
		for begun < len(in.collections) && (begun == 0 || in.collections[begun-1].ID != id) {
			text += fmt.Sprintf("%s\n  {\"collection\": %q, \"keys\": [", end, in.collections[begun].ID)
			begun, end, separator = begun+1, "\n  ]},", ""
		}
		return text
	}
	err := in.eachKey(ctx, query, func(collection string, k localapi.Key) error {
		text := begin(collection) + separator + "\n    "
		separator = ","
		b, err := json.Marshal(k)
		if err == nil {
			err = writeStrings(in.w, text, string(b))
		}
		return err
	})
	if err := in.noDamage(err); err != nil {
		return err
	}
	text := begin("") + "\n  ]}\n]\n"
	if begun == 0 {
		text = "[\n]\n"
	}
	return writeStrings(in.w, text)
}
