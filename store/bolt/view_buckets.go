package bolt

import (
	"bytes"
	"slices"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// foundBucket is a bucket that a view has read, with its path.
type foundBucket struct {
	path   [][]byte
	bucket *boltfile.Bucket
}

// bucket returns a bucket of the file, nil if there is none. It keeps those that it finds, as opening
// the same few for each read takes longer than the reads. Buckets of a transaction that the view does
// not own may be deleted meanwhile, so it does not keep these.
func (v *view) bucket(path [][]byte) (b *boltfile.Bucket) {
	if v.found == nil {
		return v.tx.At(path)
	}
	for _, f := range v.found {
		if slices.EqualFunc(f.path, path, bytes.Equal) {
			return f.bucket
		}
	}
	last := len(path) - 1
	if last == 0 {
		b = v.tx.Bucket(path[0])
	} else if in := v.bucket(path[:last]); in != nil {
		b = in.Bucket(path[last])
	}
	if b != nil {
		v.found = append(v.found, foundBucket{path, b})
	}
	return b
}

// lookup returns the value of a key, nil if there is none.
func (v *view) lookup(path [][]byte, key []byte) []byte {
	if v.over.Empty() {
		return v.lookupAt("", path, key)
	}
	return v.lookupAt(format.Address(path, key), path, key)
}

// lookupAt is lookup with the address of the key.
func (v *view) lookupAt(addr string, path [][]byte, key []byte) []byte {
	if c, ok := v.over.Get(addr); ok {
		if c.Deleted {
			return nil
		}
		return c.Value
	}
	if b := v.bucket(path); b != nil {
		return b.Get(key)
	}
	return nil
}
