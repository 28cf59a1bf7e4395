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

// rotate gives the store a key that it may have had before, or none where it need not
// have one. What is there under another one can still be read.
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

// requireSealed looks for what objects have in all files, and expects it in those that are
// in clear only.
func (x *faultyStore) requireSealed(what string) {
	x.t.Helper()
	found := false
	for where, text := range textsIn(x.t, x.disk.Dir) {
		for _, word := range []string{"ns-0/o-", "ns-1/o-", "ns-2/o-", `"metadata"`, `"payload"`} {
			there := bytes.Contains(text, []byte(word))
			require.False(x.t, there && x.sealed, "%s: %q is in %s", what, word, where)
			found = found || there
		}
	}
	require.Equal(x.t, x.sealed, !found, "%s: what is in clear can be found", what)
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
