package tokens

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	r := remembered{Answer: authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "eyJ"}}}
	for _, text := range []string{fmt.Sprint(r), fmt.Sprint(&r), fmt.Sprintf("%v %+v %#v %s %q", r, r, r, r, r), fmt.Sprintf("%v %+v %#v", &r, []remembered{r}, []*remembered{&r})} {
		require.NotContains(t, text, "eyJ")
	}
}

// TestStoredTokensAreBounded checks how many tokens are stored, and which are deleted for new ones.
func TestStoredTokensAreBounded(t *testing.T) {
	token := func(caller, id string, expires time.Duration, bytes int) (*request, *authenticationv1.TokenRequest) {
		return &request{caller: caller, namespace: "shop", name: "till", id: digest(caller, id)}, &authenticationv1.TokenRequest{
			Status: authenticationv1.TokenRequestStatus{
				Token: newJWT(strings.Repeat("x", bytes), time.Time{}), ExpirationTimestamp: metav1.NewTime(start.Add(expires)),
			},
		}
	}
	// fill stores n tokens of a caller at once. The last one expires first.
	fill := func(t *testing.T, w *world, caller string, n int, bytes int) {
		t.Helper()
		var b store.Batch
		for i := range n {
			c, err := newChange(token(caller, fmt.Sprint(i), time.Hour+time.Duration(n-i)*time.Second, bytes))
			require.NoError(t, err)
			b.Changes = append(b.Changes, c)
		}
		require.NoError(t, w.Store.collection.Apply(b))
	}
	put := func(w *world, caller, id string, expires time.Duration, bytes int) {
		ask, answer := token(caller, id, expires, bytes)
		w.Store.put(ask, answer, w.clock.Now())
	}
	has := func(w *world, caller string, id any) bool { return w.Store.get(digest(caller, fmt.Sprint(id))) != nil }
	t.Run("of one caller, those that expire first", func(t *testing.T) {
		w := newWorld(t)
		fill(t, w, "a", maxTokens, 0)
		put(w, "a", "new", time.Minute, 0)
		require.EqualValues(t, maxTokens*9/10+1, w.Store.collection.State().Count)
		require.True(t, has(w, "a", "new"))
		require.True(t, has(w, "a", maxTokens*9/10-1))
		require.False(t, has(w, "a", maxTokens*9/10))
	})
	t.Run("of the caller that has the most", func(t *testing.T) {
		w := newWorld(t)
		fill(t, w, "kubelet", 100, 0)
		fill(t, w, "greedy", maxTokens-100, 0)
		for i := range maxTokens / 10 * 2 {
			put(w, "greedy", fmt.Sprint("more-", i), 10*time.Hour, 0)
		}
		require.LessOrEqual(t, w.Store.collection.State().Count, int64(maxTokens))
		for i := range 100 {
			require.True(t, has(w, "kubelet", i), i)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		w := newWorld(t)
		fill(t, w, "kubelet", 200, 0)
		fill(t, w, "greedy", 180, maxBytes)
		for i := range 100 {
			put(w, "greedy", fmt.Sprint("more-", i), 10*time.Hour, maxBytes)
			require.LessOrEqual(t, w.Store.collection.State().Bytes, int64(maxStored+2*maxBytes))
		}
		require.Less(t, w.Store.collection.State().Count, int64(200+180+100), "some are deleted")
		for i := range 200 {
			require.True(t, has(w, "kubelet", i), i)
		}
	})
	t.Run("none more if those that are stored can't be read", func(t *testing.T) {
		w := newWorld(t)
		fill(t, w, "a", maxTokens, 0)
		stored := w.Store.collection
		w.Store.collection = unreadable{stored}
		put(w, "a", "new", 10*time.Hour, 0)
		require.EqualValues(t, maxTokens, stored.State().Count)
		require.Contains(t, w.log.String(), "no room can be made: view was open for too long")
		w.Store.collection = stored
		put(w, "a", "new", 10*time.Hour, 0)
		require.True(t, has(w, "a", "new"))
	})
	t.Run("nothing by a clock that is ahead", func(t *testing.T) {
		w := newWorld(t)
		put(w, "a", "long", 10*time.Hour, 0)
		w.clock.SetTime(start.Add(14 * 365 * 24 * time.Hour))
		ask, answer := token("a", "new", time.Hour, 0)
		lifetime := int64(3600)
		answer.Spec.ExpirationSeconds = &lifetime
		w.Store.put(ask, answer, w.clock.Now())
		require.True(t, has(w, "a", "long"))
	})
	t.Run("what has expired", func(t *testing.T) {
		w := newWorld(t)
		put(w, "a", "short", time.Minute, 0)
		put(w, "a", "long", 10*time.Hour, 0)
		w.clock.SetTime(start.Add(2 * time.Minute))
		put(w, "a", "new", 10*time.Hour, 0)
		require.True(t, has(w, "a", "short"), "not yet: it would be a write more")
		w.clock.SetTime(start.Add(time.Hour + time.Minute))
		w.Store.purged = time.Time{}
		surplus, err := w.Store.surplus(digest("a", "short"), w.clock.Now())
		require.NoError(t, err)
		require.Empty(t, surplus, "the token to be stored is not deleted")
		w.Store.purged = time.Time{}
		put(w, "a", "new", 10*time.Hour, 0)
		require.False(t, has(w, "a", "short"))
		require.True(t, has(w, "a", "long"))
	})
}

// unreadable is a collection whose disk is too slow for a view.
type unreadable struct{ store.Collection }

func (unreadable) View() (store.View, error) { return nil, store.ErrViewExpired }
