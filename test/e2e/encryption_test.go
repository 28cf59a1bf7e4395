package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// word returns random letters that occur nowhere else and are valid in a name.
func word() string {
	b := make([]byte, 20)
	for i := range b {
		b[i] = byte('a' + rand.IntN(26))
	}
	return string(b)
}

// writeKey creates a key file.
func (x *site) writeKey(name string) {
	x.t.Helper()
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(rand.UintN(256))
	}
	require.NoError(x.t, os.WriteFile(filepath.Join(x.dir, name), []byte(base64.StdEncoding.EncodeToString(key)), 0o400))
}

// requireNoneOf searches everything that the agent wrote or printed, that is database, snapshots,
// log and metrics, for the words and for halves of them.
func (x *site) requireNoneOf(words []string, texts map[string][]byte) {
	x.t.Helper()
	maps.Copy(texts, textsIn(x.t, x.dir))
	for where, text := range texts {
		for i, w := range words {
			for _, piece := range []string{w[:10], w[10:]} {
				if bytes.Contains(text, []byte(piece)) {
					x.t.Errorf("word %d is in %s", i, where)
				}
			}
		}
	}
}

// textsIn returns the content of all files in a directory, snapshots unpacked.
func textsIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	texts := make(map[string][]byte)
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		texts[path] = raw
		if at := bytes.Index(raw, []byte{0x28, 0xb5, 0x2f, 0xfd}); err == nil && strings.HasSuffix(path, ".snap") && at >= 0 {
			dec, err := zstd.NewReader(bytes.NewReader(raw[at : len(raw)-32]))
			if err != nil {
				return err
			}
			defer dec.Close()
			if texts[path+", unpacked"], err = io.ReadAll(dec); err != nil {
				return err
			}
			require.NotEmpty(t, texts[path+", unpacked"])
		}
		return err
	}))
	return texts
}

func (a *agent) metricsText() []byte {
	a.t.Helper()
	_, text := harness.Get(a.t, http.DefaultClient, "http://"+a.metrics+"/metrics")
	return text
}

// TestEncryption runs an agent with a key through a list, changes, a kill, corruption and a
// snapshot, and searches everything that it leaves for the content of objects. Then the agent gets
// another key and none, and each time starts without a list; with a wrong key it does not start.
func TestEncryption(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	var words []string // content, which must be nowhere in clear
	next := func() string { words = append(words, word()); return words[len(words)-1] }
	var b strings.Builder
	namespace := word()
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s: %s}}\n", namespace, next(), next())
	var names []string
	for range 40 {
		names = append(names, word())
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: %s, name: %s, labels: {app: %s}}\ndata: {%s: %s}\n", namespace, names[len(names)-1], word(), next(), next())
	}
	manifest := filepath.Join(t.TempDir(), "manifest.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte(b.String()), 0o600))
	harness.Kubectl(t, cp, "apply", "--server-side", "-f", manifest)

	s := settings{kubeconfig: harness.Kubeconfig(t, cp, controlplane.Admin), resources: `
- resource: configmaps
  indexes: [{name: app, label: app}]
- resource: namespaces
`}
	withKeys := func(keys string) settings {
		s := s
		s.more = "log:\n  level: debug\n" + keys
		return s
	}
	ids := []string{"configmaps", "namespaces"}
	x := newSite(t, withKeys("encryption:\n  keyFile: ./one.key"))
	x.writeKeys()
	a := x.start()
	a.requireServers(cp, ids...)
	require.Equal(t, 40, len(lines(x.must("dump", "configmaps", "-n", namespace, "-o", "name"))), "in the order of names, by namespace")
	a.kill()
	harness.Kubectl(t, cp, "delete", "configmap", "-n", namespace, names[0], names[1])
	a = x.start()
	a.requireServers(cp, ids...)
	require.Len(t, a.counters("snapcache_store_encrypted", "", "key"), 1)
	x.must("snapshot", "create")
	x.must("inspect", "configmaps", "--index", "app")
	texts := map[string][]byte{"metrics": a.metricsText()}
	a.stop()

	// Corrupt a bit of a record, which the log reports.
	var record []byte
	db, err := bbolt.Open(x.db, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("c")).Bucket([]byte("configmaps"))
		return c.ForEachBucket(func(gen []byte) error {
			_, v := c.Bucket(gen).Bucket([]byte("objects")).Cursor().First()
			record = bytes.Clone(v)
			return nil
		})
	}))
	require.NoError(t, db.Close())
	raw := harness.ReadFile(t, x.db)
	for at := bytes.Index(raw, record); at >= 0; at = bytes.Index(raw, record) { // an old page may have it too
		raw[at+20] ^= 1
	}
	require.NoError(t, os.WriteFile(x.db, raw, 0o600))
	a = x.start()
	a.awaitCaughtUp(anywhere(ids...))
	x.run("dump", "configmaps", "--config", x.config)
	a.await("the corrupt record is fetched again", func(s *localapi.Status) string {
		if n := collections(s)["configmaps"].CorruptRecords; n > 0 {
			return fmt.Sprint(n, " corrupt records")
		}
		return ""
	})
	a.requireServers(cp, ids...)
	texts["metrics after damage"] = a.metricsText()
	a.stop()
	log := harness.ReadFile(t, x.log)
	require.Contains(t, string(log), "a stored record is corrupt")
	x.requireNoneOf(words, texts)

	// Without its key the agent does not start, and the file stays.
	before := harness.ReadFile(t, x.db)
	for _, keys := range []string{"", "encryption:\n  keyFile: ./two.key"} {
		x.configure(withKeys(keys))
		a = x.start()
		require.Equal(t, 2, a.wait())
		require.Contains(t, string(harness.ReadFile(x.t, x.log)), "no key for the database")
		after := harness.ReadFile(t, x.db)
		require.True(t, bytes.Equal(before, after))
	}

	// Another key, and then none: the agent resumes without a list and rewrites the file.
	for _, next := range []struct {
		keys      string
		encrypted bool
	}{{"encryption:\n  keyFile: ./two.key\n  oldKeyFiles: [./one.key]", true}, {"encryption:\n  oldKeyFiles: [./two.key]", false}} {
		x.configure(withKeys(next.keys))
		a = x.start()
		was := a.await("the file is rewritten", func(s *localapi.Status) string {
			if s.Store.EncryptionDue {
				return "it is not yet"
			}
			return ""
		})
		require.Equal(t, next.encrypted, was.Store.EncryptionKey != "")
		a.requireServers(cp, ids...)
		for id, c := range a.awaitCaughtUp(anywhere(ids...)) {
			require.Zero(t, c.Lists, id)
		}
		a.stop()
	}
	raw = harness.ReadFile(t, x.db)
	require.True(t, slices.ContainsFunc(words, func(w string) bool { return bytes.Contains(raw, []byte(w)) }), "in clear it is found")
}
