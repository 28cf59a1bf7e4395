package reflector_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
	"github.com/snapcache/snapcache/upstream"
)

// serverHas is a server's answer for one key.
type serverHas struct {
	uid, rv string
	err     error
	at      string // of the answer; empty if it is not known
}

// versions are a server's answers by key; other keys have no object. They are of the newest state,
// also if a past one is asked for.
type versions map[string]serverHas

func (v versions) Current(_ context.Context, key, _ string) (upstream.Current, error) {
	a, ok := v[key]
	return upstream.Current{Exists: ok, UID: a.uid, RV: a.rv, ListRV: a.at}, a.err
}

// stored returns a collection with one object for each key, at the checkpoint 50.
func stored(t *testing.T, objects map[string]string, newest ...string) store.Collection {
	t.Helper()
	db := memory.New()
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c, err := db.Open(storetest.Info("test"))
	require.NoError(t, err)
	r, err := c.Replace()
	require.NoError(t, err)
	for name, rv := range objects {
		o := storetest.Object("", name, "u-"+name, rv, nil, "x")
		require.NoError(t, r.Apply([]store.Change{{Key: o.Key(), Object: o}}))
	}
	cp := store.Checkpoint{RV: "50", Cluster: "uid:1", LastList: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	copy(cp.Newest[:], newest)
	require.NoError(t, r.Commit(cp))
	return c
}

// The server's versions of the newest objects: proof of another history, no proof, or an error that
// the guard waits for.
func TestCanary(t *testing.T) {
	for _, x := range []struct {
		name   string
		server versions
		proof  string // empty for none
		waits  bool
	}{
		{"the same", versions{"a": {uid: "u-a", rv: "40"}, "b": {uid: "u-b", rv: "30"}}, "", false},
		{"deleted since", nil, "", false},
		{"changed since", versions{"a": {uid: "u-a", rv: "51"}}, "", false},
		{"created again since", versions{"a": {uid: "u-z", rv: "51"}}, "", false},
		{"lower", versions{"a": {uid: "u-a", rv: "39"}}, "a is at 39 on the server, and was at 40 before", false},
		{"lower, more digits", versions{"b": {uid: "u-b", rv: "9"}}, "b is at 9 on the server", false},
		{"same number, other object", versions{"a": {uid: "u-z", rv: "40"}}, "another object", false},
		{"higher, at the checkpoint", versions{"a": {uid: "u-a", rv: "50"}}, "which the checkpoint 50 should have brought", false},
		{"higher, below it", versions{"a": {uid: "u-a", rv: "41"}}, "should have brought", false},
		{"second", versions{"a": {uid: "u-a", rv: "40"}, "b": {uid: "u-b", rv: "29"}}, "b is at 29", false},
		{"opaque", versions{"a": {uid: "u-a", rv: "x41"}}, "", false},
		{"forbidden", versions{"a": {err: apierrors.NewForbidden(pods, "a", nil)}}, "", false},
		{"forbidden, then a proof", versions{"a": {err: apierrors.NewForbidden(pods, "a", nil)}, "b": {uid: "u-b", rv: "29"}}, "b is at 29", false},
		{"no such selector", versions{"a": {err: apierrors.NewBadRequest("field label not supported")}}, "", false},
		{"resource not served", versions{"a": {err: apierrors.NewNotFound(pods, "")}}, "", false},
		{"server failed", versions{"a": {err: apierrors.NewInternalError(errors.New("oops"))}}, "", false},
		{"credential not accepted", versions{"a": {err: apierrors.NewUnauthorized("expired")}}, "", true},
		{"busy", versions{"a": {err: apierrors.NewTooManyRequests("later", 1)}}, "", true},
		{"connection broke", versions{"a": {err: context.DeadlineExceeded}}, "", true},
		{"lower, of a server that lags", versions{"a": {uid: "u-a", rv: "39", at: "49"}}, "", true},
		{"lower, of a server that does not", versions{"a": {uid: "u-a", rv: "39", at: "50"}}, "a is at 39", false},
		{"an older object is missing", versions{"c": {uid: "u-c", rv: "1"}}, "", false},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := stored(t, map[string]string{"a": "40", "b": "30", "c": "20"}, "a", "b", "gone")
			err := reflector.Canary(c, x.server, slog.New(slog.DiscardHandler))(t.Context())
			var refused *reflector.RelistError
			switch {
			case x.proof != "":
				require.ErrorAs(t, err, &refused)
				require.Equal(t, store.ReasonRVAhead, refused.Reason)
				require.ErrorContains(t, refused, x.proof)
			case x.waits:
				require.Error(t, err)
				require.False(t, errors.As(err, &refused), "%v", err)
			default:
				require.NoError(t, err)
			}
		})
	}
}

// Opaque resourceVersions are only compared for equality.
func TestCanaryOfOpaqueVersions(t *testing.T) {
	c := stored(t, map[string]string{"a": "x1"}, "a")
	log := slog.New(slog.DiscardHandler)
	require.NoError(t, reflector.Canary(c, versions{"a": {uid: "u-a", rv: "x0"}}, log)(t.Context()))
	require.ErrorContains(t, reflector.Canary(c, versions{"a": {uid: "u-z", rv: "x1"}}, log)(t.Context()), "another object")
}

// If a transform drops the UID, a different UID proves nothing.
func TestCanaryWithoutUID(t *testing.T) {
	db := memory.New()
	defer func() { require.NoError(t, db.Close()) }()
	c, err := db.Open(storetest.Info("test"))
	require.NoError(t, err)
	o := storetest.Object("", "a", "", "40", nil, "x")
	r, err := c.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply([]store.Change{{Key: o.Key(), Object: o}}))
	require.NoError(t, r.Commit(store.Checkpoint{RV: "50", Newest: [store.NewestKeys]string{"a"}}))
	log := slog.New(slog.DiscardHandler)
	require.NoError(t, reflector.Canary(c, versions{"a": {uid: "u-a", rv: "40"}}, log)(t.Context()))
	require.Error(t, reflector.Canary(c, versions{"a": {uid: "u-a", rv: "39"}}, log)(t.Context()))
}

// Guards run after the probe, before each resume, and not before a list.
func TestGuards(t *testing.T) {
	guarded := func(s *script, answers ...error) func(*reflector.Options) {
		return func(o *reflector.Options) {
			o.Guards = []reflector.Guard{func(context.Context) error {
				s.note("guard")
				err, _ := take(s, &answers)
				return err
			}}
		}
	}
	t.Run("pass", func(t *testing.T) {
		s := &script{watches: []answer{{lasts: time.Minute}}}
		require.Equal(t, []string{"probe 50", "guard", "watch 50", "probe 50", "guard", "watch 50"}, play(t, s, 5*time.Minute, guarded(s)))
	})
	t.Run("refuse", func(t *testing.T) {
		s := &script{refusals: true, listItems: []*object.Object{pod("a", 3)}}
		refused := &reflector.RelistError{Reason: store.ReasonRVAhead, Err: errors.New("a is older")}
		require.Equal(t, []string{
			"probe 50", "guard", "refused rv-ahead: a is older",
			"begin rv-ahead uid:1 force=true", `list page=500`, "item a@3", "end 100", "watch 100",
		}, play(t, s, time.Minute, guarded(s, refused)))
	})
	t.Run("wait", func(t *testing.T) {
		s := &script{}
		require.Equal(t, []string{"probe 50", "guard", "probe 50", "guard", "watch 50"}, play(t, s, time.Minute, guarded(s, errors.New("connection refused"))))
	})
}

// past is a server that also answers for the state at the checkpoint.
type past struct {
	versions
	then versions
	err  error // the server has compacted that state, or can't be asked
	old  bool  // the server ignores the resourceVersion and answers with the newest state
}

func (p past) Current(ctx context.Context, key, at string) (upstream.Current, error) {
	switch {
	case at == "", p.old:
		return p.versions.Current(ctx, key, at)
	case p.err != nil:
		return upstream.Current{}, p.err
	case at != "50":
		return upstream.Current{}, errors.New("asked for " + at)
	}
	now, err := p.then.Current(ctx, key, at)
	now.At = at
	return now, err
}

// historySince returns the error of an agent that does not have a past state, but all changes since.
func historySince(at string) error {
	err := apierrors.NewResourceExpired("compacted")
	err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: store.HistorySinceCause, Message: at}}}
	return err
}

// The state at the checkpoint proves another history even if all objects have changed since, as on
// a busy server that was restored.
func TestCanaryAtTheCheckpoint(t *testing.T) {
	busy := versions{"a": {uid: "u-a", rv: "60"}}
	same := versions{"a": {uid: "u-a", rv: "40"}, "b": {uid: "u-b", rv: "30"}}
	for _, x := range []struct {
		name   string
		server past
		proof  string
		waits  bool
	}{
		{"forgotten, and all changed", past{versions: busy, err: apierrors.NewResourceExpired("compacted")}, "expired: ", false},
		{"forgotten, in a history that began before", past{versions: busy, err: historySince("2026-01-02T03:04:04Z")}, "", false},
		{"forgotten, in a history that began later", past{versions: busy, err: historySince("2026-01-02T03:04:05.5Z")}, "expired: ", false},
		{"forgotten, in a history of no time", past{versions: busy, err: historySince("soon")}, "expired: ", false},
		{"forgotten, in a history that contradicts", past{versions: versions{"a": {uid: "u-a", rv: "39"}}, err: historySince("2026-01-02T03:04:04Z")}, "was at 40 before", false},
		{"the same", past{versions: busy, then: same}, "", false},
		{"not there", past{versions: busy, then: versions{"a": {uid: "u-a", rv: "40"}}}, "b is not on the server at the checkpoint 50, and was at 30 before", false},
		{"older", past{versions: busy, then: versions{"a": {uid: "u-a", rv: "39"}}}, "a is at 39 on the server at the checkpoint 50, and was at 40 before", false},
		{"newer", past{versions: busy, then: versions{"a": {uid: "u-a", rv: "41"}}}, "a is at 41", false},
		{"same number, other object", past{versions: busy, then: versions{"a": {uid: "u-z", rv: "40"}}}, "another object", false},
		{"forgotten", past{versions: versions{"b": {uid: "u-b", rv: "30"}}, err: apierrors.NewResourceExpired("compacted")}, "", false},
		{"forgotten, and contradicted", past{versions: versions{"a": {uid: "u-a", rv: "39"}}, err: apierrors.NewResourceExpired("compacted")}, "was at 40 before", false},
		{"not understood", past{versions: busy, old: true}, "", false},
		{"not understood, contradicted", past{versions: versions{"b": {uid: "u-b", rv: "50"}}, old: true}, "should have brought", false},
		{"connection broke", past{versions: busy, err: context.DeadlineExceeded}, "", true},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := stored(t, map[string]string{"a": "40", "b": "30"}, "a", "b")
			err := reflector.Canary(c, x.server, slog.New(slog.DiscardHandler))(t.Context())
			var refused *reflector.RelistError
			switch {
			case x.proof != "":
				require.ErrorAs(t, err, &refused)
				require.Equal(t, x.proof == "expired: ", refused.Reason == store.ReasonExpired, "%v", err)
				require.ErrorContains(t, refused, x.proof)
			case x.waits:
				require.Error(t, err)
				require.False(t, errors.As(err, &refused), "%v", err)
			default:
				require.NoError(t, err)
			}
		})
	}
	// A repaired object may be ahead of the checkpoint.
	c := stored(t, map[string]string{"a": "55"}, "a")
	require.NoError(t, reflector.Canary(c, past{versions: versions{"a": {uid: "u-a", rv: "55"}}}, slog.New(slog.DiscardHandler))(t.Context()))
}
