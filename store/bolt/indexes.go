package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// definitions are indexes: name → Spec.
type definitions map[string]string

func definitionsOf(indexes []store.Index) definitions {
	d := definitions{}
	for _, x := range indexes {
		d[x.Name] = x.Spec
	}
	return d
}

// has reports whether x is among d with the same definition.
func (d definitions) has(x store.Index) bool {
	spec, ok := d[x.Name]
	return ok && spec == x.Spec
}

// building is the value of a generation's key "building", which exists while some of its indexes
// are not complete. Each of these indexes has the entries of all objects with a key up to After and
// of all written since the index was added, and no wrong entry: only entries of objects after
// After are missing.
type building struct {
	Indexes definitions `json:"indexes"`
	After   string      `json:"after,omitempty"` // key of the last object that the build has read
}

func (db *DB) decodeBuilding(id string, raw []byte) (b building, err error) {
	if raw != nil {
		b, err = decodeValue[building](db.path, id, format.KeyBuilding, raw)
	}
	return b, err
}

// readIndexes returns the complete indexes of a generation, and the ones that are being built.
func (c *collection) readIndexes(gen *boltfile.Bucket) (complete definitions, build building, err error) {
	if complete, err = decodeValue[definitions](c.db.path, c.id, format.KeyIndexes, gen.Get(format.KeyIndexes)); err != nil {
		return nil, build, err
	}
	if build, err = c.db.decodeBuilding(c.id, gen.Get(format.KeyBuilding)); err != nil {
		// Only the position of the build is lost: it starts again from the first object.
		build = building{Indexes: definitions{}}
		for _, x := range c.indexes {
			if !complete.has(x) {
				build.Indexes[x.Name] = x.Spec
			}
		}
	}
	return complete, build, nil
}

func putBuilding(gen *boltfile.Bucket, id string, build building) error {
	if len(build.Indexes) == 0 {
		return gen.Delete(format.KeyBuilding)
	}
	return putJSON(gen, id, format.KeyBuilding, build)
}

// syncIndexes replaces the indexes of the generation by the ones that the collection was opened with.
// Readers no longer see a dropped index; writers maintain a new one at once, and readers see it
// when it is built. It reports whether a build has work to do. The memtable must be empty.
func (c *collection) syncIndexes(gen *boltfile.Bucket) (work bool, err error) {
	root, objects := gen.Bucket(format.BucketIndex), gen.Bucket(format.BucketObjects)
	if root == nil || objects == nil {
		return false, c.damage("a bucket is missing")
	}
	hadComplete, err := decodeValue[definitions](c.db.path, c.id, format.KeyIndexes, gen.Get(format.KeyIndexes))
	if err != nil {
		return false, err
	}
	had, err := c.db.decodeBuilding(c.id, gen.Get(format.KeyBuilding))
	if err != nil {
		had = building{} // their definitions are lost: drop them
	}
	complete, build, kept := definitions{}, building{Indexes: definitions{}, After: had.After}, map[string]bool{}
	for _, x := range c.indexes {
		switch {
		case hadComplete.has(x):
			complete[x.Name], kept[x.Name] = x.Spec, true
		case had.Indexes.has(x):
			build.Indexes[x.Name], kept[x.Name] = x.Spec, true
		default:
			build.Indexes[x.Name], build.After = x.Spec, "" // build all indexes from the start, in one pass
		}
	}
	var drop [][]byte
	if err := root.ForEachBucket(func(name []byte) error {
		if !kept[string(name)] {
			drop = append(drop, bytes.Clone(name))
		}
		return nil
	}); err != nil {
		return false, err
	}
	for _, name := range drop {
		if err := root.DeleteBucket(name); err != nil {
			return false, err
		}
	}
	// Another version deleted large indexes step by step: these are their remains.
	if err := gen.DeleteBucket(format.BucketDropped); err != nil {
		return false, err
	}
	for name := range build.Indexes {
		if _, err := root.CreateBucketIfNotExists([]byte(name)); err != nil {
			return false, err
		}
	}
	if objects.FewerThan(1) {
		maps.Copy(complete, build.Indexes)
		build.Indexes = nil
	}
	return len(build.Indexes) > 0, errors.Join(putJSON(gen, c.id, format.KeyIndexes, complete), putBuilding(gen, c.id, build))
}

// computedRows is how many rows of an index that is being built are computed in one pass over the
// objects. Up to twice as many rows are in memory.
const computedRows = 4096

// indexRows iterates over the keys of an index's bucket that start with prefix and come after the
// key after, as of returns them. If the index is being built, it computes them from the objects.
func indexRows[T any](v *view, index, prefix, after string, of func(row string) (T, error)) iter.Seq2[T, error] {
	complete, building := v.definitions()
	if _, ok := complete[index]; ok {
		path := v.path(format.BucketIndex, []byte(index))
		return scan(v, path, prefix, after, func(k, _ []byte) (T, error) { return of(string(k)) })
	}
	spec, known := building[index]
	var x store.Index
	if known {
		x, known = v.function(index, spec)
	}
	return func(yield func(T, error) bool) {
		var none T
		if !known {
			yield(none, fmt.Errorf("collection %s: index %q: %w", v.id, index, store.ErrNoIndex))
			return
		}
		for more := true; more; {
			rows, err := v.lowestRows(x, prefix, after)
			if err != nil {
				yield(none, err)
				return
			}
			for _, row := range rows {
				if !yield(of(row)) {
					return
				}
				after = row
			}
			more = len(rows) == computedRows
		}
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

// namespaceKeys iterates over the keys in a namespace, empty for cluster-scoped objects. It
// needs no index: keys start with their namespace.
func (v *view) namespaceKeys(namespace, after string) iter.Seq2[string, error] {
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	keys := scan(v, v.path(format.BucketObjects), prefix, after, func(k, _ []byte) (string, error) { return string(k), nil })
	return func(yield func(string, error) bool) {
		for k, err := range keys {
			if err == nil && store.KeyNamespace(k) != namespace {
				continue
			}
			if !yield(k, err) {
				return
			}
		}
	}
}

// namespaceEntries iterates over the entries of the namespace index. It goes namespace by
// namespace: "a-b/x" comes before "a/x" in the order of keys, but after it in the order of
// namespaces.
func (v *view) namespaceEntries(prefix string, after store.IndexEntry) iter.Seq2[store.IndexEntry, error] {
	return func(yield func(store.IndexEntry, error) bool) {
		namespaces, err := v.namespaces()
		if err != nil {
			yield(store.IndexEntry{}, err)
			return
		}
		for _, ns := range namespaces {
			if !strings.HasPrefix(ns, prefix) || ns < after.Value {
				continue
			}
			from := ""
			if ns == after.Value {
				from = after.Key
			}
			for key, err := range v.namespaceKeys(ns, from) {
				if !yield(store.IndexEntry{Value: ns, Key: key}, err) {
					return
				}
			}
		}
	}
}

// namespaces returns the namespaces that have objects, in order, by seeking from each to the next.
func (v *view) namespaces() (found []string, err error) {
	cur, err := v.cursor(v.path(format.BucketObjects))
	if err != nil {
		return nil, err
	}
	move := func() ([]byte, []byte) { return cur.Seek(nil) }
	for {
		k, err := v.step(nil, move, func([]byte, []byte) {})
		if err != nil || k == nil {
			slices.Sort(found)
			return slices.Compact(found), err
		}
		ns := store.KeyNamespace(string(k))
		if len(found) == 0 || found[len(found)-1] != ns {
			found = append(found, ns)
		}
		if ns == "" {
			move = func() ([]byte, []byte) { return cur.Next(k) }
		} else {
			move = func() ([]byte, []byte) { return cur.Seek([]byte(ns + string('/'+1))) }
		}
	}
}
