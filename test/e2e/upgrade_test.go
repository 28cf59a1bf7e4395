package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

var upgradeBefore = flag.String("upgrade.before", "", "the program of another revision, which takes turns with this one: see make test-upgrade")

// turns is the number of agents of the two revisions that are killed.
const turns = 24

// TestUpgrade kills agents of this revision and of another one, in turns, on one file, while objects change. After each
// kill both read exactly the server's state from the file, and neither lists again: the formats in docs/file-format.md
// are read in both directions. With encryption each third agent is to rewrite the file, so that kills hit a file that is
// half rewritten by either revision.
func TestUpgrade(t *testing.T) {
	if *upgradeBefore == "" {
		t.Skip("it needs the program of another revision: make test-upgrade BEFORE=REVISION")
	}
	for _, tc := range []struct {
		name       string
		encryption []string // by turns
	}{
		{"in clear", []string{""}},
		{"encrypted and decrypted", []string{"encryption: {keyFile: ./one.key}", "encryption: {oldKeyFiles: [./one.key]}"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := newChurned(t)
			s := server.settings(t)
			s.commitInterval = "10ms" // as in TestKilledAtAnyMoment
			x := newSite(t, s)
			x.writeKey("one.key")
			programs := []string{*upgradeBefore, harness.Snapcache}
			k := newKilled(server)
			for i := range turns {
				s.more = tc.encryption[i/3%len(tc.encryption)]
				x.configure(s)
				x.program = programs[i%2]
				a := x.start()
				a.await("far enough", func(s *localapi.Status) string { return caughtUp(s, i%4) })
				delay := rand.N(killMax)
				sleep(t, delay)
				a.kill()
				if i == 0 {
					requireCurrentFormat(t, x, s.more != "")
				}
				for reader, program := range programs {
					x.program = program
					k.check(x, fmt.Sprintf("kill %d, %s after it was up, read by %d", i, delay.Round(time.Millisecond), reader))
				}
			}
			for _, id := range recorded {
				t.Logf("%s: %d checkpoints in %d kills", id, len(k.checkpoints[id]), turns)
				require.Greater(t, len(k.checkpoints[id]), turns/4, "%s: too few of the kills came after something was stored", id)
			}

			// Each stops as it should, and the other one goes on.
			for i, program := range []string{harness.Snapcache, *upgradeBefore, harness.Snapcache} {
				x.program = program
				a := x.start()
				if i == 0 {
					server.settle(t, a)
				}
				for id, c := range a.awaitCaughtUp(anywhere(recorded...)) {
					require.Zero(t, c.Lists, "%s: lists", id)
					require.Equal(t, k.first[id].LastList, c.LastList, "%s: it was listed again", id)
				}
				a.requireServers(server.cp, recorded...)
				a.stop()
			}
		})
	}
}

// formerStates are state directories of earlier revisions, in testdata/states: agents of these were killed while they
// cached the objects in server.ndjson, which kubectl read from the server, and had made a snapshot or the files of a
// Kubernetes API. They are never made again.
var formerStates = []struct {
	revision string
	keys     []string // the encryption as it was, and another one
	snapshot string   // a file in the directory of snapshots
	api      bool
}{
	{revision: "ec25953", keys: []string{"", "encryption: {keyFile: ./two.key}"}, snapshot: "20261127T190107.438Z.snap"},
	{revision: "724ae5f", keys: []string{"encryption: {keyFile: ./state/key}", "encryption: {keyFile: ./two.key, oldKeyFiles: [./state/key]}"}, api: true},
}

// TestFormerStates starts an agent on a state directory of an earlier revision, without a server: it has all objects, keeps
// the credentials of its Kubernetes API, sets nothing aside and leaves a file that is whole. The same is true of a kill and of
// a start with another key, during which the file is rewritten.
func TestFormerStates(t *testing.T) {
	for _, former := range formerStates {
		t.Run(former.revision, func(t *testing.T) {
			t.Parallel()
			kubeconfig := clientcmdapi.NewConfig()
			kubeconfig.Clusters["gone"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
			kubeconfig.Contexts["gone"] = &clientcmdapi.Context{Cluster: "gone"}
			kubeconfig.CurrentContext = "gone"
			s := settings{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), more: former.keys[0], resources: `
- {resource: configmaps, indexes: [{name: app, label: app}]}
- {resource: pods, namespaces: [shop-0000, shop-0001]}
- {resource: widgets.v1.example.com}
`}
			require.NoError(t, clientcmd.WriteToFile(*kubeconfig, s.kubeconfig))
			x := newSite(t, s)
			api := ""
			if former.api {
				api = "\nkubernetesAPI: {address: '" + harness.FreeAddress(t) + "', access: {enabled: true}}"
			}
			unpack(t, filepath.Join("testdata", "states", former.revision+".tar.gz"), x.dir)
			state := filepath.Join(x.dir, "state")
			want := map[string]content{}
			for line := range bytes.Lines(harness.ReadFile(t, filepath.Join(state, "server.ndjson"))) {
				o := decodeObject(t, line)
				if kind := fmt.Sprint(o["kind"]); want[kind] == nil {
					want[kind] = content{}
				}
				want[fmt.Sprint(o["kind"])].add(t, o)
			}
			require.Len(t, want, 3)
			requireAll := func(what string, from ...string) {
				t.Helper()
				got := x.dumpByKind(what, from...)
				for kind := range want {
					requireSame(t, what+", "+kind, want[kind], got[kind])
				}
			}
			before := filesIn(t, state)

			requireAll("read without an agent")
			x.writeKey("two.key")
			for _, keys := range former.keys {
				s.more = keys + api
				x.configure(s)
				for _, end := range []func(*agent){(*agent).kill, (*agent).stop} {
					a := x.start()
					a.await("read", func(s *localapi.Status) string {
						for id, c := range collections(s) {
							if !c.Synced || c.Lists > 0 {
								return id + " is not read from the file"
							}
						}
						return ""
					})
					requireAll("served")
					end(a)
					requireAll("after the end")
				}
			}
			require.NotContains(t, string(harness.ReadFile(t, x.log)), "set aside")
			after := filesIn(t, state)
			for name, content := range before {
				require.Contains(t, after, name)
				if base := filepath.Base(name); base == "token" || base == "ca.crt" || base == "ca.key" || base == former.snapshot {
					require.Equal(t, content, after[name], name)
				}
			}
			if former.api {
				require.Contains(t, string(x.must("kubeconfig")), string(before[filepath.Join(state, "kubernetes-api", "token")]))
			}
			require.Zero(t, x.run("check", "--config", x.config).Code)
			if former.snapshot != "" {
				snapshot := filepath.Join(state, "snapshots", former.snapshot)
				x.must("snapshot", "verify", snapshot)
				require.Len(t, x.dumpByKind("snapshot", "--from", snapshot), 3)
			}
		})
	}
}

// unpack unpacks an archive of regular files in directories.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	packed, err := os.Open(archive)
	require.NoError(t, err)
	defer packed.Close()
	zipped, err := gzip.NewReader(packed)
	require.NoError(t, err)
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o700))
			continue
		}
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, h.FileInfo().Mode().Perm()))
	}
}

// filesIn returns the files in a directory and below it, by name.
func filesIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found[path], err = os.ReadFile(path)
		}
		return err
	}))
	return found
}

// requireCurrentFormat skips the test if the other revision writes a format that this one sets aside: the one of encrypted
// files before format 3.
func requireCurrentFormat(t *testing.T, x *site, encrypted bool) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(x.dir, "state", "cache.db"), 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	require.NoError(t, err)
	defer db.Close()
	var format uint32
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		format = binary.BigEndian.Uint32(tx.Bucket([]byte("meta")).Get([]byte("format")))
		return nil
	}))
	if encrypted && format == 2 {
		t.Skip("the other revision encrypts in format 2, which is not read any more")
	}
	if encrypted {
		require.EqualValues(t, 3, format)
	} else {
		require.EqualValues(t, 1, format)
	}
}
