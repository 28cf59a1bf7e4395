package bolt

import (
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// dictLookup returns a function that reads dictionaries in tx. It returns nil for
// a dictionary that is missing or corrupt.
func dictLookup(tx *boltfile.Tx) func(uint32) []byte {
	return func(id uint32) []byte {
		b := tx.Bucket(format.BucketDict)
		if b == nil {
			return nil
		}
		key := format.DictKey(id)
		return format.DecodeDict(key, b.Get(key))
	}
}
