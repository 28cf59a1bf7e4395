package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store/bolt"
)

// faultyKeys is how many keys a faulty store has, in the course of its life.
const faultyKeys = 3

// rotate gives the store a key that it may have had before, or none. What is there under
// another one can still be read.
func (x *faultyStore) rotate() {
	var keys []*bolt.Key
	for n := range faultyKeys {
		k, err := bolt.ParseKey([]byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(n + 1)}, 32))))
		require.NoError(x.t, err)
		keys = append(keys, k)
	}
	x.keys = bolt.Keys{Old: keys}
	if n := x.random.IntN(faultyKeys + 1); n < faultyKeys {
		x.keys.Key = keys[n]
	}
}

// rekey returns when the file is encrypted as it is to be, or when the disk does not let it.
// The store rewrites the file by itself too: whoever comes second finds it busy, or done.
func (x *faultyStore) rekey() error {
	for x.db.Stats().EncryptionDue {
		if _, _, err := x.db.Compact(context.Background()); err != nil && !errors.Is(err, bolt.ErrBusy) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// writeKeys makes the key files that anyKeys names.
func (x *site) writeKeys() {
	x.t.Helper()
	x.writeKey("one.key")
	x.writeKey("two.key")
}

// anyKeys returns the part of a configuration by which an agent encrypts with one of two
// keys, or not at all, whatever it did before.
func anyKeys(random *rand.Rand) string {
	return []string{
		"encryption: {oldKeyFiles: [./one.key, ./two.key]}",
		"encryption: {keyFile: ./one.key, oldKeyFiles: [./two.key]}",
		"encryption: {keyFile: ./two.key, oldKeyFiles: [./one.key]}",
	}[random.IntN(3)]
}
