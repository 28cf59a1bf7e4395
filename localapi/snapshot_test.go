package localapi_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
)

// snapshots serves create, and returns a client.
func snapshots(t *testing.T, create localapi.CreateSnapshot) *localapi.Client {
	socket := filepath.Join(t.TempDir(), "s.sock")
	l, err := files.ListenUnix(socket)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(localapi.SnapshotPattern, localapi.SnapshotHandler(create))
	server := &http.Server{Handler: mux}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		<-done
	})
	return localapi.NewClient(socket)
}

func TestCreateSnapshot(t *testing.T) {
	want := &localapi.Snapshot{Name: "a", Path: "/a", Bytes: 7, Objects: 3, Created: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}
	client := snapshots(t, func(_ context.Context, progress func(string, int64, int64)) (*localapi.Snapshot, error) {
		progress("copy", 1, 2)
		return want, nil
	})
	var received []any
	got, err := client.CreateSnapshot(t.Context(), func(step string, done, total int64) { received = append(received, step, done, total) })
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, []any{"copy", int64(1), int64(2)}, received)
	got, err = client.CreateSnapshot(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestCreateSnapshotFails(t *testing.T) {
	for _, tc := range []struct {
		name    string
		err     error
		corrupt bool
	}{
		{"corrupt", &store.CorruptionError{Path: "db", Collection: "pods", Key: "a", Reason: "x"}, true},
		{"other", errors.New("no room"), false},
	} {
		for _, begun := range []bool{false, true} {
			client := snapshots(t, func(_ context.Context, progress func(string, int64, int64)) (*localapi.Snapshot, error) {
				if begun {
					progress("copy", 1, 2)
				}
				return nil, tc.err
			})
			got, err := client.CreateSnapshot(t.Context(), nil)
			require.Nil(t, got, tc.name)
			require.EqualError(t, err, tc.err.Error(), tc.name)
			require.Equal(t, tc.corrupt, errors.As(err, new(*store.CorruptionError)), tc.name)
		}
	}
}

// If the client disconnects, the snapshot is aborted.
func TestCreateSnapshotClientDisconnects(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error, 1)
	client := snapshots(t, func(ctx context.Context, _ func(string, int64, int64)) (*localapi.Snapshot, error) {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	_, err := client.CreateSnapshot(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
}
