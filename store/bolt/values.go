package bolt

import (
	"fmt"

	"github.com/snapcache/snapcache/store"
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

// putNumber stores a number with a checksum.
func putNumber[N uint32 | uint64](t table, id string, name []byte, n N) error {
	b, err := format.EncodeNumber(id, name, n)
	if err != nil {
		return err
	}
	return t.Put(name, b)
}

// corruptValue returns the error for a value of a collection that failed its check with
// err.
func corruptValue(path, id string, name []byte, err error) error {
	return &store.CorruptionError{Path: path, Collection: id, Reason: fmt.Sprintf("%s: %v", name, err)}
}
