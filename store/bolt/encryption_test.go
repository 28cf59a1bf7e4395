package bolt_test

import (
	"bytes"
	"encoding/base64"

	"github.com/snapcache/snapcache/store/bolt"
)

// newKey returns the key number n.
func newKey(n byte) *bolt.Key {
	k, err := bolt.ParseKey([]byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32))))
	if err != nil {
		panic(err)
	}
	return k
}
