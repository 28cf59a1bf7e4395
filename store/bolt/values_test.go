package bolt_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// foldedSample is sampleFile with its journal in the buckets.
func foldedSample(t *testing.T) string {
	path := sampleFile(t)
	db := openDB(t, path, bolt.Options{HistoryRetention: storetest.HistoryRetention})
	require.NoError(t, db.Fold())
	require.NoError(t, db.Close())
	return path
}

// TestValue_FlippedBit_IsCorruption flips each bit of each small value of a collection: a flipped digit of a
// checkpoint that stays undetected would lose events for good. The other collection goes on.
func TestValue_FlippedBit_IsCorruption(t *testing.T) {
	path := foldedSample(t)
	whole := readFile(t, path)
	values := map[string][]byte{}
	edit(t, path, func(tx *bbolt.Tx) error {
		for _, name := range []string{"info", "state", "gen", "dict"} {
			values[name] = bytes.Clone(bucketAt(tx, "c/pods").Get([]byte(name)))
		}
		values["indexes"] = bytes.Clone(bucketAt(tx, "c/pods/g1").Get([]byte("indexes")))
		return nil
	})
	step := 1
	if testing.Short() {
		step = 5
	}
	for name, value := range values {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, value)
			// The free pages may hold an old copy: change all of them.
			var at []int
			for i := 0; ; i++ {
				n := bytes.Index(whole[i:], value)
				if n < 0 {
					break
				}
				i += n
				at = append(at, i)
			}
			require.NotEmpty(t, at)
			path := filepath.Join(t.TempDir(), "cache.db")
			for bit := 0; bit < 8*len(value); bit += step {
				b := bytes.Clone(whole)
				for _, i := range at {
					b[i+bit/8] ^= 1 << (bit % 8)
				}
				require.NoError(t, os.WriteFile(path, b, 0o600))
				damage := damageOf(t, path)
				require.Equal(t, "pods", damage.Collection, "bit %d", bit)
				require.Empty(t, damage.Key)
				require.Equal(t, name+": checksum does not match", damage.Reason)
				if bit%7 > 0 {
					continue // Check takes longer than the rest of the test
				}
				report := checkReport(t, path, bolt.Keyring{})
				require.Contains(t, report.Problems, bolt.Problem{Collection: "pods", Reason: damage.Reason}, "bit %d", bit)
			}
		})
	}
}

// damageOf opens a file in which a value of the collection "pods" is corrupt, reads "nodes", and
// returns the corruption that opening "pods" returns.
func damageOf(t *testing.T, path string) *store.CorruptionError {
	db := openDB(t, path, bolt.Options{})
	defer db.Close()
	nodes := view(t, db, "nodes")
	_, err := nodes.Get("edge-1")
	require.NoError(t, err)
	nodes.Close()
	var damage *store.CorruptionError
	_, err = db.Open(storetest.Info("pods"), append(lifeIndexes(), mine)...)
	require.ErrorAs(t, err, &damage)
	v, err := db.View("pods")
	if !strings.HasPrefix(damage.Reason, "dict:") { // which readers don't need
		require.ErrorAs(t, err, new(*store.CorruptionError))
		return damage
	}
	require.NoError(t, err)
	v.Close()
	return damage
}

// A value of another collection, or of another name, is refused.
func TestValue_OfAnotherName_IsRefused(t *testing.T) {
	sealed := bolt.Seal("pods", []byte("state"), []byte("{}"))
	content, err := bolt.Unseal("pods", []byte("state"), sealed)
	require.NoError(t, err)
	require.Equal(t, "{}", string(content))
	for _, other := range [][2]string{{"nodes", "state"}, {"pods", "info"}, {"pod", "sstate"}} {
		_, err := bolt.Unseal(other[0], []byte(other[1]), sealed)
		require.ErrorContains(t, err, "checksum does not match", other)
	}
	for n := range 4 {
		_, err := bolt.Unseal("pods", []byte("state"), sealed[:n])
		require.ErrorContains(t, err, "cut short")
	}
}

// If a generation number can't be read, the generation must not be deleted as a leftover.
func TestCorruptGenerationStays(t *testing.T) {
	path := foldedSample(t)
	edit(t, path, func(tx *bbolt.Tx) error {
		return bucketAt(tx, "c/pods").Put([]byte("gen"), []byte("noise"))
	})
	db := openDB(t, path, bolt.Options{})
	require.NoError(t, db.Close())
	edit(t, path, func(tx *bbolt.Tx) error {
		require.NotNil(t, bucketAt(tx, "c/pods/g1/objects"))
		return nil
	})
}
