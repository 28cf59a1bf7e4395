package bolt

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// computedRows is how many rows of an index that is being built are computed in one pass over the
// objects. Up to twice as many rows are in memory.
const computedRows = 4096

// indexRows iterates over the keys of an index's bucket that start with prefix and come after the
// key after. If the index is being built, it computes them from the objects.
func (v *view) indexRows(index, prefix, after string) iter.Seq2[string, error] {
	complete, building := v.definitions()
	if _, ok := complete[index]; ok {
		return scan(v, v.path(format.BucketIndex, []byte(index)), prefix, after, func(k, _ []byte) (string, error) { return string(k), nil })
	}
	if spec, ok := building[index]; ok {
		if x, known := v.function(index, spec); known {
			return v.computed(x, prefix, after)
		}
	}
	return func(yield func(string, error) bool) {
		yield("", fmt.Errorf("collection %s: index %q: %w", v.id, index, store.ErrNoIndex))
	}
}

// function returns the index with a name and a spec. A program's own index is known only if the
// collection was opened with it.
func (v *view) function(name, spec string) (store.Index, bool) {
	for _, x := range v.indexes {
		if x.Name == name && x.Spec == spec {
			return x, true
		}
	}
	return store.IndexFromSpec(name, spec)
}

// computed is indexRows for an index that is being built.
func (v *view) computed(x store.Index, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for more := true; more; {
			rows, err := v.lowestRows(x, prefix, after)
			if err != nil {
				yield("", err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
				after = row
			}
			more = len(rows) == computedRows
		}
	}
}

// lowestRows returns the first computedRows rows of an index that start with prefix and come after
// the row after, in order. It leaves out objects that are corrupt, which a build does too.
func (v *view) lowestRows(x store.Index, prefix, after string) (rows []string, err error) {
	for o, err := range v.Objects("", "") {
		if damage := (*store.CorruptionError)(nil); errors.As(err, &damage) && damage.Key != "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, value := range x.Values(o) {
			if row := string(format.IndexKey(value, o.Key())); row > after && strings.HasPrefix(row, prefix) {
				rows = append(rows, row)
			}
		}
		if len(rows) >= 2*computedRows {
			slices.Sort(rows)
			rows = rows[:computedRows]
		}
	}
	slices.Sort(rows)
	return rows[:min(len(rows), computedRows)], nil
}
