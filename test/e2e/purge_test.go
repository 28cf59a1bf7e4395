package e2e

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
	"github.com/snapcache/snapcache/test/controlplane/objects"
)

// TestSecretsPurged revokes all rights of an agent that has Secrets, with one more in its history
// and one more in the journal. After the purge no byte of their records is in the file; configmaps
// stay. When the rights are granted again, Secrets are listed again and configmaps are not.
func TestSecretsPurged(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	require.NoError(t, objects.Seed(t.Context(), cp, objects.SeedOptions{ConfigMaps: 30, Secrets: 60}))
	kubectl := func(args ...string) {
		_, err := cp.Kubectl(t.Context(), args...)
		require.NoError(t, err, args)
	}
	const marker = "a-marker-that-nothing-else-has"
	kubectl("create", "secret", "generic", "-n", "default", "gone", "--from-literal=note="+marker)
	kubectl("create", "secret", "generic", "-n", "default", "stays", "--from-literal=note="+marker)
	x := newSite(t, settings{
		kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: "- resource: configmaps\n- resource: secrets", consent: true,
		purgeAfter: "4s",
	})
	a := x.start()
	a.requireServers(cp, "configmaps", "secrets")
	kubectl("delete", "secret", "-n", "default", "gone")
	a.requireServers(cp, "configmaps", "secrets")
	a.stop()
	secret, kept := recordBytes(t, x.db, "secrets"), recordBytes(t, x.db, "configmaps")
	require.Greater(t, len(secret), 60)
	require.Len(t, missing(t, x.db, secret), 0)

	a = x.start()
	a.awaitCaughtUp(anywhere("configmaps", "secrets"))
	kubectl("annotate", "secret", "-n", "default", "stays", "example.com/changed=yes")
	a.requireServers(cp, "secrets")
	a.kill() // the last change is in the journal

	x.kubeconfig = harness.Kubeconfig(t, cp, controlplane.Stranger)
	a = x.start()
	s := a.await("purged", func(s *localapi.Status) string {
		c := collections(s)["secrets"]
		if c.Purged == nil {
			return "in phase " + c.Phase + ": " + c.Problem
		}
		return ""
	})
	c := collections(s)["secrets"]
	require.Greater(t, c.Purged.Objects, int64(60))
	require.Equal(t, 1, a.counters("snapcache_purges_total", "secrets", "collection").total())
	require.Contains(t, string(harness.ReadFile(x.t, x.log)), "PURGED")
	require.Contains(t, string(x.run("status", "--config", x.config).Stdout), "PURGED")
	require.Equal(t, 3, x.run("dump", "secrets", "--config", x.config).Code, "not empty: never synced")
	poll(t, "the file is rewritten", nil, func(context.Context) (bool, error) {
		return strings.Contains(string(harness.ReadFile(x.t, x.log)), "the file holds nothing of the purged objects"), nil
	})
	require.Len(t, missing(t, x.db, secret), len(secret), "no record of a secret is in the file")
	require.NotContains(t, string(harness.ReadFile(t, x.db)), marker)
	require.Len(t, missing(t, x.db, kept), 0)
	require.NoFileExists(t, x.db+".compact")
	require.Len(t, x.cached("configmaps"), len(onServer(t, cp, "configmaps")), "every other 403 deletes nothing")

	kubectl("create", "clusterrolebinding", "back", "--clusterrole=cluster-admin", "--user=nobody")
	a.requireServers(cp, "configmaps", "secrets")
	require.Equal(t, counters{"initial": 1}, nonZero(a.relists("secrets")))
	require.Empty(t, nonZero(a.relists("configmaps")))
	a.stop()
	require.Zero(t, x.run("check", "--db", x.db).Code)
}

// recordBytes returns the end of each record of a collection, deleted ones included, from a file
// that no agent has open.
func recordBytes(t *testing.T, path, collection string) [][]byte {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	var found [][]byte
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("c")).Bucket([]byte(collection))
		return c.ForEachBucket(func(gen []byte) error {
			for _, name := range []string{"objects", "tombs"} {
				err := c.Bucket(gen).Bucket([]byte(name)).ForEach(func(_, v []byte) error {
					found = append(found, bytes.Clone(v[max(0, len(v)-40):]))
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}))
	return found
}

// missing returns those byte strings that are not in a file.
func missing(t *testing.T, path string, wanted [][]byte) [][]byte {
	t.Helper()
	b := harness.ReadFile(t, path)
	return slices.DeleteFunc(slices.Clone(wanted), func(w []byte) bool { return bytes.Contains(b, w) })
}

// nonZero drops the zero values.
func nonZero(c counters) counters {
	n := counters{}
	for name, v := range c {
		if v != 0 {
			n[name] = v
		}
	}
	return n
}
