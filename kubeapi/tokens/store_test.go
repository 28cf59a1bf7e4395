package tokens

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
)

// TestTokensSurviveCrash checks that tokens survive a crash, that no file has one in clear, and that a
// deletion is durable too.
func TestTokensSurviveCrash(t *testing.T) {
	w := newWorld(t)
	token, _ := w.send(kubelet(packed, func(a *asking) { a.spec.Audiences = []string{"audience-in-clear"} }))
	w.code = http.StatusServiceUnavailable
	ask := func() (string, int) {
		token, out := w.send(kubelet(packed, func(a *asking) { a.spec.Audiences = []string{"audience-in-clear"} }))
		return token, out.Code
	}
	info, err := os.Stat(w.file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	crash := func() {
		// A copy of the files is what a crash leaves: nothing is flushed when it is made.
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Dir(w.file))))
		require.NoError(t, w.db.Close())
		w.file = filepath.Join(dir, "tokens.db")
		w.open()
	}
	crash()
	again, _ := ask()
	require.Equal(t, token, again)

	files, err := os.ReadDir(filepath.Dir(w.file))
	require.NoError(t, err)
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(w.file), f.Name()))
		require.NoError(t, err)
		for _, clear := range []string{token, token[:20], strings.Split(token, ".")[1], "audience-in-clear", "till", "edge-1"} {
			require.NotContains(t, string(raw), clear, f.Name())
		}
	}

	w.code = http.StatusForbidden
	_, code := ask()
	require.Equal(t, http.StatusForbidden, code)
	crash()
	w.code = http.StatusServiceUnavailable
	_, code = ask()
	require.Equal(t, http.StatusServiceUnavailable, code)
}

// TestNotEncrypted checks that no token is stored in clear.
func TestNotEncrypted(t *testing.T) {
	plain, err := bolt.Open(filepath.Join(t.TempDir(), "tokens.db"), bolt.Options{})
	require.NoError(t, err)
	for _, db := range []store.DB{plain, memory.New()} {
		_, err := Open(db, nil)
		require.ErrorIs(t, err, ErrNotEncrypted)
		require.NoError(t, db.Close())
	}
}

// TestTokenIsNotPrinted checks that no way to print a token shows it.
func TestTokenIsNotPrinted(t *testing.T) {
	r := storedToken{Answer: authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "eyJ"}}}
	for _, text := range []string{fmt.Sprint(r), fmt.Sprint(&r), fmt.Sprintf("%v %+v %#v %s %q", r, r, r, r, r), fmt.Sprintf("%v %+v %#v", &r, []storedToken{r}, []*storedToken{&r})} {
		require.NotContains(t, text, "eyJ")
	}
}

// sealed is a store in memory that takes tokens.
type sealed struct{ store.DB }

func (sealed) Stats() store.Stats { return store.Stats{EncryptionKey: "a"} }

// TestStoredTokensAreBounded checks how many tokens are stored, and which are deleted for new ones.
func TestStoredTokensAreBounded(t *testing.T) {
	newHandler := func(t *testing.T) (*Handler, func() store.State) {
		db := sealed{memory.New()}
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		s, err := Open(db, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return &Handler{Store: s, Log: slog.New(slog.DiscardHandler)}, func() store.State {
			v, err := db.View("tokens")
			require.NoError(t, err)
			defer v.Close()
			return v.State()
		}
	}
	put := func(h *Handler, now time.Time, caller, id any, expires, lifetime time.Duration, bytes int) {
		seconds := int64(lifetime / time.Second)
		h.Clock = clocktesting.NewFakePassiveClock(now)
		h.remember(&request{caller: fmt.Sprint(caller), id: digest(fmt.Sprint(caller, id))}, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
			Status: authenticationv1.TokenRequestStatus{
				Token: newJWT(strings.Repeat("x", bytes), time.Time{}), ExpirationTimestamp: metav1.NewTime(start.Add(expires)),
			},
		})
	}
	has := func(h *Handler, caller, id any) bool {
		_, err := h.Store.Get(digest(fmt.Sprint(caller, id)))
		return err == nil
	}
	t.Run("those that expire first, of the caller with the most", func(t *testing.T) {
		h, state := newHandler(t)
		put(h, start, "kubelet", 0, time.Minute, time.Minute, 0)
		for i := range maxTokens {
			expires := time.Hour + time.Duration(maxTokens-i)*time.Second
			put(h, start, "greedy", i, expires, expires, 0)
		}
		require.EqualValues(t, maxTokens*9/10+1, state().Count)
		require.True(t, has(h, "kubelet", 0))
		require.True(t, has(h, "greedy", 0))
		require.False(t, has(h, "greedy", maxTokens-2))
		require.True(t, has(h, "greedy", maxTokens-1), "it is the one to be stored")
	})
	t.Run("bytes", func(t *testing.T) {
		h, state := newHandler(t)
		for i := range 300 {
			put(h, start, "greedy", i, time.Hour, time.Hour, maxBytes)
			require.LessOrEqual(t, state().Bytes, int64(maxStored+2*maxBytes))
		}
		require.Greater(t, state().Count, int64(100), "most stay")
	})
	t.Run("expired ones, but none by a clock that is ahead", func(t *testing.T) {
		h, _ := newHandler(t)
		put(h, start, "a", "short", time.Minute, time.Minute, 0)
		put(h, start, "a", "long", 10*time.Hour, 10*time.Hour, 0)
		put(h, start.Add(14*365*24*time.Hour), "a", "other", 2*time.Hour, time.Hour, 0)
		require.False(t, has(h, "a", "short"))
		require.True(t, has(h, "a", "long"))
	})
}

// TestFormerTokens checks that tokens are read which an earlier version has stored as whole Kubernetes
// objects.
func TestFormerTokens(t *testing.T) {
	db := sealed{memory.New()}
	defer db.Close()
	c, err := db.Open(store.Info{ID: "tokens", Group: "snapcache", Version: "v1", Resource: "tokens", Kind: "Token"})
	require.NoError(t, err)
	o, err := object.Parse([]byte(`{"kind":"Token","apiVersion":"snapcache/v1","metadata":{"name":"a","resourceVersion":"1"},` +
		`"caller":"c","answer":{"metadata":{},"spec":{"audiences":["b"],"expirationSeconds":3600,"boundObjectRef":null},` +
		`"status":{"token":"t","expirationTimestamp":"2026-11-01T13:00:00Z"}}}`))
	require.NoError(t, err)
	require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{{Key: o.Key(), Object: o}}}))
	require.NoError(t, c.Close())
	s, err := Open(db, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	got, err := s.Get("a")
	require.NoError(t, err)
	require.Equal(t, "t", got.Answer.Status.Token)
	require.Equal(t, []string{"b"}, got.Answer.Spec.Audiences)
}
