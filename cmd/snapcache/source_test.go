package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// A command without an agent opens the file once, whatever the number of collections, and holds it
// no longer than it reads: an agent can start while the answer is printed.
func TestLookup_File_IsOpenedOnceAndNotHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	for _, id := range []string{"configmaps", "secrets", "services"} {
		c, err := db.Open(storetest.Info(id))
		require.NoError(t, err)
		r, err := c.Replace()
		require.NoError(t, err)
		require.NoError(t, r.Apply([]store.Change{storetest.Put(storetest.Object("ns", "a", "u", "1", nil, ""))}))
		require.NoError(t, r.Commit(storetest.Checkpoint(1)))
	}
	require.NoError(t, db.Close())

	opened, printed := 0, 0
	look := &lookup{db: path, onlyFile: true, keys: func() (bolt.Keyring, error) {
		opened++
		return bolt.Keyring{}, nil
	}}
	defer look.close()
	src, status, err := look.open(t.Context())
	require.NoError(t, err)
	require.NoError(t, src.Objects(t.Context(), ids(status.Collections), localapi.ObjectQuery{}, func([]byte) error {
		printed++
		agents, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			return err
		}
		return agents.Close()
	}))
	require.Equal(t, 3, printed)
	require.Equal(t, 1, opened)
}

// An agent that starts has the file open some moments before it answers, and one that stops, after it
// answered last. A command waits for either, and reports the lock if it lasts.
func TestLookup_WaitsForStartAndStop(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cache.db")
	look := func() *lookup {
		return &lookup{socket: filepath.Join(dir, "agent.sock"), db: path, keys: func() (bolt.Keyring, error) { return bolt.Keyring{}, nil }}
	}
	agents, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	_, _, err = look().open(t.Context())
	require.ErrorIs(t, err, store.ErrLocked)
	require.ErrorIs(t, err, localapi.ErrNoAgent)

	tries := 0
	require.NoError(t, retryLocked(t.Context(), func() error {
		l := look()
		defer l.close()
		_, _, err := l.openAgentOrFile(t.Context())
		if tries++; tries == 2 {
			require.ErrorIs(t, err, store.ErrLocked)
			require.NoError(t, agents.Close())
		}
		return err
	}))
	require.Equal(t, 3, tries)
}

// A user who may connect to the service's socket reads the service's cache, unless the options or a
// configuration of the user's own name another.
func TestSocketOf(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("RUNTIME_DIRECTORY", filepath.Join(dir, "own"))
	t.Setenv("STATE_DIRECTORY", filepath.Join(dir, "state"))
	own, service := filepath.Join(dir, "own", "snapcache.sock"), filepath.Join(dir, "service.sock")
	cfg := config.Default()
	require.Equal(t, own, cfg.LocalAPI.Socket)
	require.Equal(t, own, socketOf("", cfg, service), "there is no service")

	l, err := net.Listen("unix", service)
	require.NoError(t, err)
	defer l.Close()
	const etc = "/etc/snapcache/"
	elsewhere := config.Default()
	elsewhere.LocalAPI.Socket = "/elsewhere.sock"
	for _, c := range []struct {
		file string
		cfg  *config.AgentConfiguration
		want string
	}{
		{"", cfg, service}, {etc + "agent.yaml", cfg, service}, {etc + "east/agent.yaml", cfg, service}, {"mine.yaml", cfg, own},
		{"", elsewhere, "/elsewhere.sock"}, {etc + "agent.yaml", elsewhere, "/elsewhere.sock"},
	} {
		require.Equal(t, c.want, socketOf(c.file, c.cfg, service), "%+v", c)
	}

	if os.Geteuid() == 0 {
		t.Skip("root may connect to every socket")
	}
	require.NoError(t, os.Chmod(service, 0))
	require.Equal(t, service, socketOf("", cfg, service), "the error names the group")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "state"), 0o700))
	require.NoError(t, os.WriteFile(cfg.Store.Path, nil, 0o600))
	require.Equal(t, own, socketOf("", cfg, service), "this user has a cache")
}

// config check names each directory that the package's service may not write to.
func TestNotWritable(t *testing.T) {
	cfg := config.Default()
	cfg.Store.Path, cfg.Snapshots.Dir = "/data/a/cache.db", "/data/b"
	cfg.LocalAPI.Socket, cfg.KubernetesAPI.Socket = config.Service{}.Socket(), "/run/snapcache/kubernetes.sock"
	root := fstest.MapFS{}
	require.Equal(t, []string{"/data/a", "/data/b"}, notWritable(cfg, "snapcache", root))
	cfg.Snapshots.Dir = "/data/a/snapshots"
	require.Equal(t, []string{"/data/a"}, notWritable(cfg, "snapcache", root), "a directory below one that is named")
	cfg.Snapshots.Dir = "/data/b"
	root["etc/systemd/system/snapcache.service.d/override.conf"] = &fstest.MapFile{Data: []byte("[Service]\nReadWritePaths=/data/a\n")}
	require.Equal(t, []string{"/data/b"}, notWritable(cfg, "snapcache", root))
	cfg.Store.Type = config.StoreMemory
	require.Empty(t, notWritable(cfg, "snapcache", fstest.MapFS{}))
}
