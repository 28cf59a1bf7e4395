package bolt

import (
	"encoding/binary"
	"errors"
	"maps"

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

// has says whether x is among them under the same definition.
func (d definitions) has(x store.Index) bool {
	spec, ok := d[x.Name]
	return ok && spec == x.Spec
}

// building is what a generation has under the key "building" while it has indexes
// that are not complete. Each of them has an entry for whatever was written since
// the index was added and for every object up to After, and no entry that does not
// belong there: all that is missing are entries of objects behind After.
type building struct {
	Indexes definitions `json:"indexes"`
	After   string      `json:"after,omitempty"` // key
}

func decodeIndexes(id string, raw []byte) (definitions, error) {
	d := definitions{}
	err := format.DecodeJSON(id, format.KeyIndexes, raw, &d)
	return d, err
}

func decodeBuilding(id string, raw []byte) (b building, err error) {
	if raw != nil {
		err = format.DecodeJSON(id, format.KeyBuilding, raw, &b)
	}
	return b, err
}

// readIndexes reads which indexes a generation has, complete and not, of those that
// the collection was opened with.
func (c *collection) readIndexes(gen *boltfile.Bucket) (complete definitions, build building, err error) {
	if complete, err = decodeIndexes(c.id, gen.Get(format.KeyIndexes)); err != nil {
		return nil, build, corruptValue(c.db.path, c.id, format.KeyIndexes, err)
	}
	if build, err = decodeBuilding(c.id, gen.Get(format.KeyBuilding)); err != nil {
		// Only how far they are is lost.
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

// syncIndexes makes the indexes that the collection was opened with those of the
// generation. What readers must not see any more is gone for them at once; what is
// new is there for writers, and for readers once it was built. It says whether
// anything is left to be done in the background. Nothing may be in the memtable.
func (c *collection) syncIndexes(gen *boltfile.Bucket) (work bool, err error) {
	root, objects := gen.Bucket(format.BucketIndex), gen.Bucket(format.BucketObjects)
	if root == nil || objects == nil {
		return false, c.damage("a bucket is missing")
	}
	hadComplete, err := decodeIndexes(c.id, gen.Get(format.KeyIndexes))
	if err != nil {
		return false, corruptValue(c.db.path, c.id, format.KeyIndexes, err)
	}
	had, damage := decodeBuilding(c.id, gen.Get(format.KeyBuilding))
	if damage != nil {
		had = building{} // what they are of is not known, so they go
	}
	complete, build := definitions{}, building{Indexes: definitions{}, After: had.After}
	for _, x := range c.indexes {
		switch {
		case hadComplete.has(x):
			complete[x.Name] = x.Spec
		case had.Indexes.has(x):
			build.Indexes[x.Name] = x.Spec
		default:
			build.Indexes[x.Name], build.After = x.Spec, "" // all of them from the start: one reading for all
		}
	}
	if err := c.dropIndexes(gen, root, func(name string) bool {
		if _, ok := complete[name]; ok {
			return true
		}
		now, wanted := build.Indexes[name]
		before, begun := had.Indexes[name]
		return wanted && begun && now == before
	}); err != nil {
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
	if !maps.Equal(complete, hadComplete) {
		if err := putJSON(gen, c.id, format.KeyIndexes, complete); err != nil {
			return false, err
		}
	}
	if damage != nil || !maps.Equal(build.Indexes, had.Indexes) || build.After != had.After {
		if err := putBuilding(gen, c.id, build); err != nil {
			return false, err
		}
	}
	return len(build.Indexes) > 0 || gen.Bucket(format.BucketDropped) != nil, nil
}

// dropIndexes drops the indexes that are not to be kept: small ones at once, large
// ones by moving them out of the way, for the builder.
func (c *collection) dropIndexes(gen, root *boltfile.Bucket, keep func(name string) bool) error {
	var drop [][]byte
	err := root.ForEachBucket(func(name []byte) error {
		if !keep(string(name)) {
			drop = append(drop, append([]byte(nil), name...))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range drop {
		if root.Bucket(name).FewerThan(c.db.hooks.stepRecords) {
			if err := root.DeleteBucket(name); err != nil {
				return err
			}
			continue
		}
		dropped, err := gen.CreateBucketIfNotExists(format.BucketDropped)
		if err != nil {
			return err
		}
		// Under a name of its own: the index may be dropped again before this is gone.
		seq, err := dropped.NextSequence()
		if err != nil {
			return err
		}
		to, err := dropped.CreateBucket(binary.BigEndian.AppendUint64(nil, seq))
		if err != nil {
			return err
		}
		if err := root.MoveBucket(name, to); err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes up to n entries of the indexes that were dropped, and says whether
// all are gone.
func sweep(gen *boltfile.Bucket, n int) (done bool, err error) {
	dropped := gen.Bucket(format.BucketDropped)
	if dropped == nil {
		return true, nil
	}
	slot, _ := dropped.Cursor().First()
	if slot == nil {
		return true, gen.DeleteBucket(format.BucketDropped)
	}
	holder := dropped.Bucket(slot)
	if holder == nil {
		return false, errors.New("a dropped index is not a bucket")
	}
	name, _ := holder.Cursor().First()
	if name == nil {
		return false, dropped.DeleteBucket(slot)
	}
	entries := holder.Bucket(name)
	if entries == nil || entries.FewerThan(n) {
		return false, dropped.DeleteBucket(slot)
	}
	var keys [][]byte // a cursor does not go on well over what it deletes
	cur := entries.Cursor()
	for k, _ := cur.First(); k != nil && len(keys) < n; k, _ = cur.Next() {
		keys = append(keys, k)
	}
	for _, k := range keys {
		if err := entries.Delete(k); err != nil {
			return false, err
		}
	}
	return false, nil
}
