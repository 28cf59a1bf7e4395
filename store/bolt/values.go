package bolt

import (
	"bytes"
	"fmt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// putJSON stores v as JSON with a checksum.
func putJSON(t table, id string, name []byte, v any) error {
	b, err := format.EncodeJSON(id, name, v)
	if err != nil {
		return err
	}
	return t.Put(name, b)
}

// decodeValue verifies and decodes a value of putJSON.
func decodeValue[T any](path, id string, name, raw []byte) (v T, err error) {
	if err = format.DecodeJSON(id, name, raw, &v); err != nil {
		err = corruptValue(path, id, name, err)
	}
	return v, err
}

// corruptValue returns the error for a value of a collection that failed its check with err.
func corruptValue(path, id string, name []byte, err error) error {
	return &store.CorruptionError{Path: path, Collection: id, Reason: fmt.Sprintf("%s: %v", name, err)}
}

// eachCollection calls fn with the bucket of each collection, in the order of their IDs.
func eachCollection(tx *boltfile.Tx, fn func(id string, b *boltfile.Bucket) error) error {
	all := tx.Bucket(format.BucketCollections)
	return all.ForEachBucket(func(id []byte) error { return fn(string(id), all.Bucket(id)) })
}

// readGen returns the number of the generation that readers see.
func readGen(path, id string, b *boltfile.Bucket) (uint64, error) {
	n, err := format.DecodeNumber(id, format.KeyGen, b.Get(format.KeyGen))
	if err != nil {
		return 0, corruptValue(path, id, format.KeyGen, err)
	}
	return n, nil
}

// leftovers returns the names of a collection's generations that no reader sees: replacements that did
// not end have left them.
func leftovers(path, id string, b *boltfile.Bucket) (names [][]byte, err error) {
	n, err := readGen(path, id, b)
	if err != nil {
		return nil, nil //nolint:nilerr // the current generation is unknown: a view of the collection returns the error
	}
	err = b.ForEachBucket(func(name []byte) error {
		if !bytes.Equal(name, format.GenName(n)) {
			names = append(names, bytes.Clone(name))
		}
		return nil
	})
	return names, err
}
