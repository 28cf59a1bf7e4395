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

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
)

// inspection prints indexes and keys of collections. It collects corruption and continues.
type inspection struct {
	src         localapi.Source
	w           io.Writer
	json        bool
	collections []localapi.Collection
	names       []string                      // of the objects; empty for all
	absent      sets.Set[string]              // those of names that were not found so far
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

// index prints the values of an index, with counts and sizes.
func (in *inspection) index(ctx context.Context, index string) error {
	answers := []indexAnswer{}
	values, err := in.src.Index(ctx, ids(in.collections), index)
	if err := in.noDamage(err); err != nil {
		return err
	}
	for i, c := range in.collections {
		answers = append(answers, indexAnswer{c.ID, index, values[i]})
	}
	if in.json {
		return writeJSON(in.w, answers)
	}
	return indexTable(in.w, index, answers)
}

// total is the name of the line with the sums. It can't be a namespace, which has no capitals.
const total = "TOTAL"

func indexTable(w io.Writer, index string, answers []indexAnswer) error {
	head := "VALUE OF " + index
	if index == store.NamespaceIndex {
		head = "NAMESPACE"
	}
	t := newTable(w, "COLLECTION", head, ">OBJECTS", ">SIZE")
	var all localapi.IndexValue
	for _, a := range answers {
		var sum localapi.IndexValue
		for _, v := range a.Values {
			value := v.Value
			if value == "" && index == store.NamespaceIndex {
				value = "(none)"
			}
			t.row(a.Collection, value, humanCount(v.Objects), humanBytes(v.Bytes))
			sum.Objects, sum.Bytes = sum.Objects+v.Objects, sum.Bytes+v.Bytes
		}
		t.row(a.Collection, total, humanCount(sum.Objects), humanBytes(sum.Bytes))
		all.Objects, all.Bytes = all.Objects+sum.Objects, all.Bytes+sum.Bytes
	}
	if len(answers) > 1 {
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

// eachKey calls fn for the keys of the names.
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
	// begin returns the beginning of the list of a collection, and of those before it.
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
