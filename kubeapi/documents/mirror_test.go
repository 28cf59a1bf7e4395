package documents

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

const (
	core   = `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[{"version":"v1"}]}]}`
	groups = `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]}]}`
)

func get(_ context.Context, path string) ([]byte, error) {
	return []byte(map[string]string{"/api": core, "/apis": groups}[path]), nil
}

// serve returns the code of the answer, 0 for none, and its age.
func serve(m *Mirror, path string) (code int, age string) {
	w := httptest.NewRecorder()
	if !m.Serve(w, httptest.NewRequest(http.MethodGet, path, nil), false) {
		return 0, ""
	}
	return w.Code, w.Header().Get("Age")
}

// TestMirror: documents outlive a restart, with their age, and what the server does not send leaves them as they are.
func TestMirror(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC))
	path := filepath.Join(t.TempDir(), "discovery.json")
	m, err := Open(path, clock)
	require.NoError(t, err)
	code, _ := serve(m, "/apis")
	require.Zero(t, code, "there are none yet")
	require.NoError(t, m.Refresh(t.Context(), get))

	clock.SetTime(clock.Now().Add(90 * time.Second))
	for range 2 {
		for _, known := range []string{"/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1"} {
			code, age := serve(m, known)
			require.Equal(t, http.StatusOK, code, known)
			require.Equal(t, "90", age)
		}
		code, _ = serve(m, "/apis/batch/v1")
		require.Zero(t, code, "the server has none")
		require.Error(t, m.Refresh(t.Context(), func(context.Context, string) ([]byte, error) { return nil, errors.New("away") }))
		require.Error(t, m.Refresh(t.Context(), func(context.Context, string) ([]byte, error) { return []byte("<html>"), nil }))
		m, err = Open(path, clock)
		require.NoError(t, err)
	}
}

// TestMirror_Damaged: a file that is of no use is named, and the next reading replaces it.
func TestMirror_Damaged(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	path := filepath.Join(t.TempDir(), "discovery.json")
	for _, content := range []string{"", "{", "null", `{"core":{},"groups":{}}`} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		m, err := Open(path, clock)
		require.ErrorContains(t, err, path)
		code, _ := serve(m, "/apis")
		require.Zero(t, code)
		require.NoError(t, m.Refresh(t.Context(), get))
		m, err = Open(path, clock)
		require.NoError(t, err)
		code, _ = serve(m, "/apis")
		require.Equal(t, http.StatusOK, code)
	}
}

// TestMirror_Asked: requests have the documents read again once they are ten minutes old.
func TestMirror_Asked(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	m, err := Open(filepath.Join(t.TempDir(), "discovery.json"), clock)
	require.NoError(t, err)
	m.Note()
	m.Note()
	require.Len(t, m.Asked(), 1)
	<-m.Asked()
	require.NoError(t, m.Refresh(t.Context(), get))
	clock.SetTime(clock.Now().Add(readAgain - time.Second))
	m.Note()
	require.Empty(t, m.Asked())
	clock.SetTime(clock.Now().Add(time.Second))
	m.Note()
	require.Len(t, m.Asked(), 1)
}
