package localapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// now is the time of the sources' clocks: an hour after checkpoint 5 was proven.
var now = storetest.Checkpoint(5).Proven().Add(time.Hour)

// fixture is the content of every database in these tests.
//
//	configmaps    synced, with objects in a, a-b and shop, and the index "app"
//	nodes         synced, in no namespace
//	empty.apps    synced, without objects
//	pods@shop     never synced, though an interrupted list left an object
func fixture(t *testing.T, db store.DB) {
	keep(t, db, storetest.Info("configmaps"), true, []*object.Object{
		storetest.Object("a", "one", "u1", "1", map[string]string{"app": "till"}, "é \" \\ \n"),
		storetest.Object("a", "two", "u2", "2", map[string]string{"app": "web", "tier": "front"}, "x"),
		storetest.Object("a-b", "one", "u3", "3", nil, strings.Repeat("long ", 20_000)),
		storetest.Object("shop", "one", "u4", "4", map[string]string{"app": "till"}, "y"),
		storetest.Object("shop", "two", "u5", "5", nil, "z"),
	}, store.LabelIndex("app", "app"))

	nodes := storetest.Info("nodes")
	nodes.Resource, nodes.Kind, nodes.Namespaced = "nodes", "Node", false
	keep(t, db, nodes, true, []*object.Object{
		storetest.Object("", "edge-1", "u6", "6", nil, ""),
		storetest.Object("", "edge-2", "u7", "7", map[string]string{"app": "till"}, ""),
	})

	empty := storetest.Info("empty.apps")
	empty.Group, empty.Resource = "apps", "empty"
	keep(t, db, empty, true, nil)

	pods := storetest.Info("pods@shop")
	pods.Resource, pods.Kind, pods.Namespace = "pods", "Pod", "shop"
	keep(t, db, pods, false, []*object.Object{storetest.Object("shop", "half", "u8", "8", nil, "")})
}

// keep stores a collection, and gives it up.
func keep(t *testing.T, db store.DB, info store.Info, synced bool, objects []*object.Object, indexes ...store.Index) {
	t.Helper()
	require.NoError(t, fill(t, db, info, synced, objects, indexes...).Close())
}

func fill(t *testing.T, db store.DB, info store.Info, synced bool, objects []*object.Object, indexes ...store.Index) store.Collection {
	t.Helper()
	c, err := db.Open(info, indexes...)
	require.NoError(t, err)
	var changes []store.Change
	for _, o := range objects {
		changes = append(changes, storetest.Put(o))
	}
	if !synced {
		require.NoError(t, c.Apply(store.Batch{Changes: changes}))
		return c
	}
	r, err := c.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply(changes))
	require.NoError(t, r.Commit(storetest.Checkpoint(5)))
	return c
}

func options(t *testing.T, storeType string) Options {
	return Options{StoreType: storeType, Verdict: "opened", SpoolDir: t.TempDir(), Clock: testingclock.NewFakePassiveClock(now)}
}

func newBolt(t *testing.T) (*bolt.DB, string) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{HistoryRetention: storetest.HistoryRetention})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db, path
}

type namedSource struct {
	name string
	src  Source
}

// sources returns all kinds of Source on the fixture.
func sources(t *testing.T) []namedSource {
	mem := memory.New()
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	fixture(t, mem)

	db, _ := newBolt(t)
	fixture(t, db)

	closed, path := newBolt(t)
	fixture(t, closed)
	require.NoError(t, closed.Close())
	file, err := bolt.Open(path, bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })

	return []namedSource{
		{"memory", FromDB(mem, options(t, "memory"))},
		{"bolt", FromDB(db, options(t, "bolt"))},
		{"file", FromDB(file, options(t, "bolt"))},
		{"socket on memory", serve(t, FromDB(mem, options(t, "memory")))},
		{"socket on bolt", serve(t, FromDB(db, options(t, "bolt")))},
	}
}

// serve serves a source on a real socket.
func serve(t *testing.T, src Source) *Client {
	return NewClient(serveHandler(t, Handler(src)))
}

func serveHandler(t *testing.T, h http.Handler) (socket string) {
	// Not t.TempDir: it contains the test's name, and a socket's path must be short.
	dir, err := os.MkdirTemp("", "api")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "run", "snapcache.sock")
	listener, err := files.ListenUnix(socket)
	require.NoError(t, err)
	server := &http.Server{Handler: h}
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return socket
}

func objectKeys(src Source, id string, q ObjectQuery) ([]string, error) {
	var keys []string
	err := src.Objects(context.Background(), []string{id}, q, func(json []byte) error {
		o, err := object.Parse(bytes.Clone(json))
		if err == nil {
			keys = append(keys, o.Key())
		}
		return err
	})
	return keys, err
}

func indexOf(ctx context.Context, src Source, id, index string) ([]IndexValue, error) {
	values, err := src.Index(ctx, []string{id}, index)
	if len(values) == 0 {
		return nil, err
	}
	return values[0], err
}

func allKeys(src Source, id string, q KeyQuery) ([]Key, error) {
	var keys []Key
	err := src.Keys(context.Background(), []string{id}, q, func(_ string, k Key) error {
		keys = append(keys, k)
		return nil
	})
	return keys, err
}

// many returns objects whose payload does not compress well.
func many(n, bytes int) []*object.Object {
	objects := make([]*object.Object, n)
	for i := range objects {
		var payload strings.Builder
		for j := 0; payload.Len() < bytes; j++ {
			fmt.Fprintf(&payload, "%x,", (uint64(i)*2654435761+uint64(j)*40503)%1_000_003)
		}
		objects[i] = storetest.Object("ns", fmt.Sprintf("o-%06d", i), fmt.Sprint("u-", i), "3", nil, payload.String())
	}
	return objects
}
