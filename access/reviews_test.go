package access

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/store/memory"
)

// TestFailedTokenReviews: a server that gives no answer is asked once in a while about a token, and not for
// each request. If too many questions wait, what is known here does not count.
func TestFailedTokenReviews(t *testing.T) {
	cluster := newAuthority(t)
	w := newWorld()
	w.SetKeys(cluster.keys("k1"))
	w.connected = true
	good := cluster.token("k1", claimsOf(nil))
	for range 100 {
		_, err := w.Caller(request(good))
		require.NoError(t, err)
		_, err = w.Caller(request("opaque"))
		require.Error(t, err)
	}
	require.Equal(t, 2, w.reviewed)
	w.objects["pods shop/till-0"] = "-"
	_, err := w.Caller(request(good))
	require.Error(t, err, "deletions count at once")
	w.objects["pods shop/till-0"] = "p1"
	w.review = func(string) (authenticationv1.TokenReviewStatus, error) {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("a question: %w", ErrBusy)
	}
	_, err = w.Caller(request(good))
	require.NoError(t, err)
	w.clock.SetTime(start.Add(failedAge))
	for range 2 {
		_, err = w.Caller(request(good))
		require.ErrorIs(t, err, ErrBusy)
	}
	require.Equal(t, 4, w.reviewed)
}

// TestReviewNewSigningKey: a token of the cluster that was signed by a new key is noticed when the
// server accepts it.
func TestReviewNewSigningKey(t *testing.T) {
	cluster := newAuthority(t)
	accepted := true
	for _, tc := range []struct {
		name, token string
		accepted    bool
		want        int
	}{
		{"known key", cluster.token("k1", claimsOf(nil)), true, 0},
		{"new key", cluster.token("k2", claimsOf(nil)), true, 1},
		{"new key, refused", cluster.token("k2", claimsOf(nil)), false, 0},
		{"another issuer", cluster.token("k2", claimsOf(func(c map[string]any) { c["iss"] = "https://login.example.com" })), true, 0},
		{"another audience", cluster.token("k1", claimsOf(func(c map[string]any) { c["aud"] = []string{"edge"} })), true, 0},
		{"opaque", "opaque", true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.connected = true
			w.review = func(string) (authenticationv1.TokenReviewStatus, error) {
				return authenticationv1.TokenReviewStatus{Authenticated: accepted}, nil
			}
			rotated := 0
			w.opts.Rotated = func() { rotated++ }
			accepted = tc.accepted
			_, err := w.Caller(request(tc.token))
			require.Equal(t, tc.accepted, err == nil)
			require.Zero(t, rotated, "no key is known at all")
			w.SetKeys(cluster.keys("k1"))
			w.clock.SetTime(start.Add(time.Minute))
			for range 2 {
				_, err = w.Caller(request(tc.token))
				require.Equal(t, tc.accepted, err == nil)
			}
			require.Equal(t, tc.want, rotated)
		})
	}
}

// TestFailedReviews: a server that gives no answer is asked once in a while, and not for each request.
func TestFailedReviews(t *testing.T) {
	db := memory.New()
	defer db.Close()
	x := newDesk(openDecisions(t, db))
	x.connected = true
	x.server["alice list pods"] = true
	require.True(t, x.may("alice", "list", "pods"))
	x.fails = true
	x.clock.SetTime(start.Add(time.Minute))
	for range 100 {
		require.True(t, x.may("alice", "list", "pods"))
		require.False(t, x.may("alice", "list", "secrets"))
	}
	require.Equal(t, 3, x.reviewed)
	x.fails = false
	x.server["alice list pods"], x.server["alice list secrets"] = false, true
	x.clock.SetTime(start.Add(time.Minute + failedAge - time.Millisecond))
	require.True(t, x.may("alice", "list", "pods"))
	x.clock.SetTime(start.Add(time.Minute + failedAge))
	require.False(t, x.may("alice", "list", "pods"))
	require.True(t, x.may("alice", "list", "secrets"))
	require.Equal(t, 5, x.reviewed)
}

// TestTooManyReviews: a caller about which too many questions wait is refused for now, whatever is
// known of it, and whatever it has: otherwise it could keep a right by asking often.
func TestTooManyReviews(t *testing.T) {
	db := memory.New()
	defer db.Close()
	x := newDesk(openDecisions(t, db))
	x.connected = true
	x.server["alice watch pods"] = true
	require.True(t, x.may("alice", "watch", "pods"))
	x.busy = true
	x.clock.SetTime(start.Add(time.Minute))
	ctx := WithCaller(context.Background(), &Caller{User: authenticationv1.UserInfo{Username: "alice", Groups: []string{authenticated}}})
	for _, forwarded := range []bool{false, true} {
		asked := ask("watch", "pods")
		asked.Continues, asked.Forwarded = true, forwarded
		require.True(t, apierrors.IsTooManyRequests(x.Authorize(ctx, asked)))
	}
	x.busy = false
	require.True(t, x.may("alice", "watch", "pods"), "a refusal because of too many reviews is not remembered")
}

// TestRefusalsAreLogged once a minute for each request, however often it comes and however it is decided.
func TestRefusalsAreLogged(t *testing.T) {
	var out bytes.Buffer
	x := newDesk(nil)
	x.opts.Log = slog.New(slog.NewTextHandler(&out, nil))
	lines := func() int { return strings.Count(out.String(), "\n") }
	for _, connected := range []bool{true, false} {
		for _, fails := range []bool{true, false} {
			x.connected, x.fails = connected, fails
			for range 10 {
				require.False(t, x.may("alice", "list", "secrets"))
			}
		}
	}
	require.Equal(t, 1, lines(), out.String())
	require.Contains(t, out.String(), `msg=refused user=alice reason="the cluster can't be asked, and has not allowed it lately" verb=list resource=secrets`)
	require.False(t, x.may("bob", "list", "secrets"))
	require.Equal(t, 2, lines())
	for s := range 61 {
		x.clock.SetTime(start.Add(time.Duration(s) * time.Second))
		require.False(t, x.may("alice", "list", "secrets"))
	}
	require.Equal(t, 3, lines())
	x.connected, x.server["alice list pods"] = true, true
	require.True(t, x.may("alice", "list", "pods"))
	require.Equal(t, 3, lines())
}
