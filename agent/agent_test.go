package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// These tests run the agent without a server. Those with a server are in test/e2e.

// node is a directory with a configuration and a kubeconfig, whose server refuses connections.
type node struct {
	dir string
	cfg *config.AgentConfiguration
}

func newNode(t *testing.T, extra string) *node {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.2:0") // the listeners of 127.0.0.1 may get a port that is free again
	require.NoError(t, err)
	refused := l.Addr().String()
	require.NoError(t, l.Close())
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: x
clusters: [{name: x, cluster: {server: "http://%s"}}]
users: [{name: x, user: {token: t}}]
contexts: [{name: x, context: {cluster: x, user: x}}]
`, refused), 0o600))
	if !strings.Contains(extra, "metrics:") {
		extra += "\nmetrics: {disabled: true}\n"
	}
	cfg, err := config.Parse("test", fmt.Appendf(nil, `
apiVersion: snapcache.dev/v1alpha1
kind: AgentConfiguration
kubeconfig: %s
store: {path: %s/state/cache.db}
localAPI: {socket: %s/run/s.sock}
%s`, kubeconfig, dir, dir, extra))
	require.NoError(t, err)
	return &node{dir: dir, cfg: cfg}
}

// seed makes the database of an earlier run: two synced pods and a leftover.
func (n *node) seed(t *testing.T) {
	db, err := bolt.Open(n.cfg.Store.Path, bolt.Options{})
	require.NoError(t, err)
	defer db.Close()
	for _, info := range []store.Info{
		{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true, Transform: object.NewPrune(object.ManagedFields).ID()},
		{ID: "secrets", Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true},
	} {
		c, err := db.Open(info)
		require.NoError(t, err)
		r, err := c.Replace()
		require.NoError(t, err)
		for _, name := range []string{"a", "b"} {
			o, err := object.Parse(fmt.Appendf(nil, `{"kind":%q,"apiVersion":"v1","metadata":{"namespace":"shop","name":%q,"uid":"u","resourceVersion":"5"}}`, info.Kind, name))
			require.NoError(t, err)
			require.NoError(t, r.Apply([]store.Change{{Key: o.Key(), Object: o}}))
		}
		require.NoError(t, r.Commit(store.Checkpoint{RV: "7", Cluster: "uid:1", LastList: time.Now().Add(-time.Hour).UTC()}))
	}
}

// run starts the agent; the returned function stops it and returns its error.
func (n *node) run(t *testing.T, log io.Writer) (*localapi.Client, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, n.cfg, Options{Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil))})
	}()
	client := localapi.NewClient(n.cfg.LocalAPI.Socket)
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := client.Status(ctx)
		return err == nil, nil
	})
	if err != nil {
		cancel()
		t.Fatalf("the agent does not answer: %v; it ended with: %v", err, <-done)
	}
	stopped := false
	stop := func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { _ = stop() })
	return client, stop
}

const podsOnly = "resources: [{resource: pods}, {resource: widgets.example.com}]"

func TestOfflineStart(t *testing.T) {
	n := newNode(t, podsOnly)
	n.seed(t)
	client, stop := n.run(t, io.Discard)

	status, err := client.Status(t.Context())
	require.NoError(t, err)
	require.False(t, status.Agent.Connected)
	require.Equal(t, "opened", status.Store.Verdict)
	require.Len(t, status.Collections, 2, "collections no longer configured are dropped, new ones are in the status")
	pods, widgets := status.Collections[0], status.Collections[1]
	require.Equal(t, "pods", pods.ID)
	require.True(t, pods.Synced)
	require.EqualValues(t, 2, pods.Objects)
	require.Equal(t, "resume at RV 7", pods.Verdict)
	require.InDelta(t, 3600, pods.AgeSeconds, 60)
	require.Equal(t, "widgets.example.com", widgets.ID)
	require.False(t, widgets.Synced)

	var names []string
	require.NoError(t, client.Objects(t.Context(), []string{"pods"}, localapi.ObjectQuery{}, func(json []byte) error {
		o, err := object.Parse(bytes.Clone(json))
		require.NoError(t, err)
		names = append(names, o.GetName())
		return nil
	}))
	require.Equal(t, []string{"a", "b"}, names)
	err = client.Objects(t.Context(), []string{"widgets.example.com"}, localapi.ObjectQuery{}, func(json []byte) error { return nil })
	require.Error(t, err, "never synced is not empty")

	// The status has the reason why the agent is not caught up.
	err = wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		status, err := client.Status(ctx)
		return err == nil && status.Agent.Problem != "", err
	})
	require.NoError(t, err)
	require.NoError(t, stop())

	db, err := bolt.Open(n.cfg.Store.Path, bolt.Options{ReadOnly: true})
	require.NoError(t, err, "a stopped agent has let the file go")
	defer db.Close()
	infos, err := db.Collections()
	require.NoError(t, err)
	require.Len(t, infos, 1)
}

// TestFollowChangesUntilStop checks that a client that follows changes gets the current
// resourceVersion, and that its stream ends as soon as the agent stops.
func TestFollowChangesUntilStop(t *testing.T) {
	n := newNode(t, podsOnly)
	n.seed(t)
	client, stop := n.run(t, io.Discard)
	received := make(chan localapi.Change)
	ended := make(chan error, 1)
	go func() {
		ended <- client.Changes(context.Background(), "pods", localapi.ChangeQuery{Since: "7", Follow: true}, func(c localapi.Change) error {
			received <- c
			return nil
		})
	}()
	require.Equal(t, localapi.Change{Type: localapi.Bookmark, ResourceVersion: "7"}, <-received)
	began := time.Now()
	require.NoError(t, stop())
	require.ErrorIs(t, <-ended, localapi.ErrNoAgent)
	require.Less(t, time.Since(began), 2*time.Second, "the stop waited for an open stream")
}

func TestBoltOptions(t *testing.T) {
	n := newNode(t, podsOnly+"\nhistory: {retention: 1m, maxSize: 64Ki}\n")
	opts := (&Agent{settings: newSettings(n.cfg, time.Now())}).boltOptions(bolt.Keyring{})
	require.EqualValues(t, 1<<30, opts.MaxBytes)
	require.Equal(t, 5*time.Second, opts.FlushInterval)
	require.Equal(t, time.Minute, opts.HistoryRetention)
	require.EqualValues(t, 64<<10, opts.HistoryBytes)
}

func TestNextChange_NoCollection(t *testing.T) {
	require.Nil(t, (&Agent{}).nextChange("absent"))
}

func TestGarbageIsSetAside(t *testing.T) {
	n := newNode(t, podsOnly)
	require.NoError(t, os.MkdirAll(filepath.Dir(n.cfg.Store.Path), 0o700))
	require.NoError(t, os.WriteFile(n.cfg.Store.Path, []byte("not a database"), 0o600))
	var log bytes.Buffer
	client, stop := n.run(t, &log)
	status, err := client.Status(t.Context())
	require.NoError(t, err)
	require.Contains(t, status.Store.Verdict, "quarantined: foreign")
	require.NoError(t, stop())
	require.Contains(t, log.String(), "set aside")
	aside, err := filepath.Glob(n.cfg.Store.Path + ".foreign-*")
	require.NoError(t, err)
	require.Len(t, aside, 1)
}

// TestCorruptHeadIsSetAside checks that a file with a corrupt checkpoint or dictionary is set aside
// once, and that the next start opens the new file.
func TestCorruptHeadIsSetAside(t *testing.T) {
	for _, name := range []string{"state", "dict"} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, podsOnly)
			n.seed(t)
			raw, err := bbolt.Open(n.cfg.Store.Path, 0o600, nil)
			require.NoError(t, err)
			require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte("c")).Bucket([]byte("pods"))
				value := append([]byte("...."), b.Get([]byte(name))...)
				value[len(value)-1] ^= 1
				return b.Put([]byte(name), value)
			}))
			require.NoError(t, raw.Close())
			for _, verdict := range []string{"quarantined: corrupt", "opened"} {
				client, stop := n.run(t, io.Discard)
				status, err := client.Status(t.Context())
				require.NoError(t, err)
				require.Contains(t, status.Store.Verdict, verdict)
				require.NoError(t, stop())
			}
			aside, err := filepath.Glob(n.cfg.Store.Path + ".corrupt-*")
			require.NoError(t, err)
			require.Len(t, aside, 1)
		})
	}
}

func TestStartErrors(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, n *node)
		usage bool
		text  string
	}{
		{"no kubeconfig", func(_ *testing.T, n *node) { n.cfg.Kubeconfig += ".absent" }, true, "no such file"},
		{"bad kubeconfig", func(t *testing.T, n *node) {
			require.NoError(t, os.WriteFile(n.cfg.Kubeconfig, []byte("{"), 0o600))
		}, true, "kubeconfig"},
		{"locked", func(t *testing.T, n *node) {
			db, err := bolt.Open(n.cfg.Store.Path, bolt.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
		}, false, "in use by another process"},
		{"port in use", func(t *testing.T, n *node) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
			n.cfg.Metrics = config.Metrics{Address: l.Addr().String()}
		}, false, "metrics.address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, podsOnly)
			tc.spoil(t, n)
			err := Run(t.Context(), n.cfg, Options{})
			require.ErrorContains(t, err, tc.text)
			require.Equal(t, tc.usage, errors.As(err, new(*UsageError)))
		})
	}
}

func TestMetrics(t *testing.T) {
	address := freeAddress(t)
	n := newNode(t, podsOnly+"\nmetrics: {address: \""+address+"\"}\n")
	n.seed(t)
	_, stop := n.run(t, io.Discard)
	resp, err := http.Get("http://" + address + "/metrics") //nolint:noctx // a loopback server of this test
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	for _, line := range []string{
		`snapcache_build_info{version="test"} 1`,
		`snapcache_collection_objects{collection="pods"} 2`,
		`snapcache_collection_synced{collection="widgets.example.com"} 0`,
		`snapcache_relists_total{collection="pods",reason="expired"} 0`,
	} {
		require.Contains(t, string(body), line+"\n")
	}
	require.NotContains(t, string(body), `snapcache_checkpoint_age_seconds{collection="widgets.example.com"}`)
	require.Contains(t, string(body), `snapcache_collection_checkpoint_age_seconds{collection="pods"} 3`)
	require.NoError(t, stop())
}
