package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/agent/internal/database"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store/bolt"
)

// TestMovesToFile: an agent whose database is in memory goes on with a file once the disk takes one. For systemd
// it has not stopped meanwhile.
func TestMovesToFile(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprintf("stopped=%v", stopped), func(t *testing.T) { movesToFile(t, stopped) })
	}
}

func movesToFile(t *testing.T, stopped bool) {
	m := notified(t)
	n := newNode(t, podsOnly)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, err := newAgent(n.cfg, Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, a.use(database.InMemory(syscall.EROFS)))
	if stopped {
		cancel()
	}
	next, err := a.run(ctx)
	require.NoError(t, err)
	if stopped {
		require.Nil(t, next)
		m.next(t, "the end", func(s string) bool { return strings.Contains(s, "STOPPING=1") })
		return
	}
	require.NotNil(t, next)
	require.NotNil(t, next.db.Bolt)
	ended := make(chan error, 1)
	go func() {
		last, err := next.run(ctx)
		assert.Nil(t, last)
		ended <- err
	}()
	ready := func(s string) bool { return s == "READY=1" }
	for _, message := range append(m.next(t, "of the first", ready), m.next(t, "of the second", ready)...) {
		require.NotContains(t, message, "STOPPING")
	}
	s, err := localapi.NewClient(n.cfg.LocalAPI.Socket).Status(t.Context())
	require.NoError(t, err)
	require.Empty(t, s.Store.Problem)
	cancel()
	require.NoError(t, <-ended)
	db, err := bolt.Open(n.cfg.Store.Path, bolt.Options{})
	require.NoError(t, err, "it is closed")
	require.NoError(t, db.Close())
}

// TestMemoryAfterFile: a database in memory has no snapshots, also if a file was tried before.
func TestMemoryAfterFile(t *testing.T) {
	n := newNode(t, podsOnly)
	a, err := newAgent(n.cfg, Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer a.cluster.Close()
	require.NoError(t, a.openStore(t.Context()))
	require.NotNil(t, a.snapshots)
	require.NoError(t, a.db.Close())
	require.NoError(t, a.use(database.InMemory(syscall.EROFS)))
	require.Nil(t, a.snapshots)
}
