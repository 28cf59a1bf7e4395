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

// faultyKeys is the number of keys that a faulty store uses in its life.
const faultyKeys = 3

// rotate gives the store a key, perhaps one that it had before, or none if it may be in clear. The
// store can still read data under the other keys.
func (x *faultyStore) rotate() {
	var keys []*bolt.EncryptionKey
	for n := range faultyKeys {
		k, err := bolt.ParseKey([]byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(n + 1)}, 32))))
		require.NoError(x.t, err)
		keys = append(keys, k)
	}
	x.keys = bolt.Keyring{Previous: keys}
	choices := faultyKeys + 1
	if x.sealed {
		choices = faultyKeys
	}
	if n := x.random.IntN(choices); n < faultyKeys {
		x.keys.Primary = keys[n]
	}
}

// rekey returns when the file is encrypted as configured, or on an error of the disk. The store
// also rewrites the file by itself, so a call may find it busy, or done.
func (x *faultyStore) rekey() error {
	for x.db.Stats().EncryptionDue {
		if _, _, err := x.db.Compact(context.Background()); err != nil && !errors.Is(err, bolt.ErrBusy) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// requireSealed searches all files for the content of objects, and expects it only in those that
// are in clear.
func (x *faultyStore) requireSealed(what string) {
	x.t.Helper()
	found := false
	for where, text := range textsIn(x.t, x.disk.Dir) {
		for _, word := range []string{`"metadata"`, `"payload"`} {
			there := bytes.Contains(text, []byte(word))
			require.False(x.t, there && x.sealed, "%s: %q is in %s", what, word, where)
			found = found || there
		}
	}
	require.Equal(x.t, x.sealed, !found, "%s: what is in clear can be found", what)
}

// writeKeys creates the key files that anyKeys names.
func (x *site) writeKeys() {
	x.t.Helper()
	x.writeKey("one.key")
	x.writeKey("two.key")
}

// anyKeys returns the part of a configuration with which an agent encrypts with one of two keys, or
// not at all, and can read the file under any of them.
func anyKeys(random *rand.Rand) string {
	return []string{
		"encryption: {oldKeyFiles: [./one.key, ./two.key]}",
		"encryption: {keyFile: ./one.key, oldKeyFiles: [./two.key]}",
		"encryption: {keyFile: ./two.key, oldKeyFiles: [./one.key]}",
	}[random.IntN(3)]
}
