package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
)

// desk is an Authorizer with a server that allows what is in its set.
type desk struct {
	*Authorizer
	clock     *clocktesting.FakePassiveClock
	connected bool
	reviewed  int
	fails     bool
	busy      bool
	server    map[string]bool // "user verb resource"
	reason    string          // of the server
}

func newDesk(d *Decisions) *desk {
	x := &desk{clock: clocktesting.NewFakePassiveClock(start), server: map[string]bool{}}
	review := func(_ context.Context, s authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
		x.reviewed++
		switch {
		case x.busy:
			return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("a question: %w", ErrBusy)
		case x.fails:
			return authorizationv1.SubjectAccessReviewStatus{}, errors.New("timeout")
		}
		return authorizationv1.SubjectAccessReviewStatus{Allowed: x.server[s.User+" "+s.ResourceAttributes.Verb+" "+s.ResourceAttributes.Resource], Reason: x.reason}, nil
	}
	x.Authorizer = NewAuthorizer(AuthorizerOptions{
		Connected: func() bool { return x.connected }, Review: review, Decisions: d, Clock: x.clock, Log: slog.New(slog.DiscardHandler),
	})
	return x
}

func ask(verb, resource string) Request {
	return Request{Resource: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: resource}}
}

func (x *desk) may(user, verb, resource string) bool {
	ctx := WithCaller(context.Background(), &Caller{User: authenticationv1.UserInfo{Username: user, Groups: []string{authenticated}}})
	return x.Authorize(ctx, ask(verb, resource)) == nil
}

func openDecisions(t *testing.T, db store.DB) *Decisions {
	t.Helper()
	d, err := OpenDecisions(db, 24*time.Hour, start, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return d
}

// TestDecisions: the server decides while it can be reached, and is asked once a minute; without it,
// what it has allowed within a day is allowed, also after a restart, and nothing else.
func TestDecisions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions.db")
	db, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	x := newDesk(openDecisions(t, db))
	x.connected = true
	x.server["alice list pods"] = true
	for range 3 {
		require.True(t, x.may("alice", "list", "pods"))
		require.False(t, x.may("alice", "list", "secrets"))
	}
	require.Equal(t, 2, x.reviewed)
	x.clock.SetTime(start.Add(time.Minute))
	require.True(t, x.may("alice", "list", "pods"))
	require.Equal(t, 3, x.reviewed)

	x.fails = true
	x.clock.SetTime(start.Add(2 * time.Minute))
	require.True(t, x.may("alice", "list", "pods"), "without an answer, the last one counts")
	require.False(t, x.may("alice", "watch", "pods"))
	x.connected = false
	require.True(t, x.may("alice", "list", "pods"))
	require.False(t, x.may("bob", "list", "pods"))
	require.False(t, x.may("alice", "list", "secrets"))
	require.NoError(t, db.Close())

	db, err = bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	x = newDesk(openDecisions(t, db))
	require.True(t, x.may("alice", "list", "pods"))
	require.False(t, x.may("alice", "list", "secrets"))
	x.clock.SetTime(start.Add(-1000 * time.Hour))
	require.True(t, x.may("alice", "list", "pods"), "a clock that begins in the past")
	x.clock.SetTime(start.Add(23 * time.Hour))
	require.True(t, x.may("alice", "list", "pods"))
	x.clock.SetTime(start.Add(24*time.Hour + time.Minute))
	require.False(t, x.may("alice", "list", "pods"), "the decision has expired")

	x.connected = true
	require.False(t, x.may("alice", "list", "pods"), "the server has withdrawn it")
	x.connected = false
	x.clock.SetTime(start)
	require.False(t, x.may("alice", "list", "pods"), "the refusal is remembered")
	require.Zero(t, db.Stats().FlushError)
}

// TestDecisions_WrongClock: a decision that was made with a clock that was ahead, or is judged with one that is behind,
// counts for a day from the start, not until its date; and no wrong clock deletes one.
func TestDecisions_WrongClock(t *testing.T) {
	for _, off := range []time.Duration{-26 * year, -2 * time.Hour, 2 * time.Hour, 14 * year} {
		path := filepath.Join(t.TempDir(), "decisions.db")
		db, err := bolt.Open(path, bolt.Options{})
		require.NoError(t, err)
		d := openDecisions(t, db)
		d.note("a", "alice", true, false, start)
		at := start.Add(off)
		require.Equal(t, off < 24*time.Hour, d.allowed("a", at, false))
		require.True(t, d.allowed("a", start.Add(time.Hour), false), "right again")

		d.note("b", "alice", true, false, at)
		require.Equal(t, off > -24*time.Hour, d.allowed("b", start.Add(time.Hour), false))
		require.False(t, d.allowed("b", start.Add(27*time.Hour), false), "not until its date and a day")
		require.NoError(t, db.Close())
	}
}

// TestWatchAuthorizedAgain: a right that was withdrawn at the worst moment ends what lasts within a
// minute, with one more question in that time.
func TestWatchAuthorizedAgain(t *testing.T) {
	x := newDesk(nil)
	x.connected = true
	x.server["alice watch pods"] = true
	require.True(t, x.may("alice", "watch", "pods"))
	x.server["alice watch pods"] = false
	ctx := WithCaller(context.Background(), &Caller{User: authenticationv1.UserInfo{Username: "alice", Groups: []string{authenticated}}})
	asked := ask("watch", "pods")
	asked.Continues = true
	for s := 9 * time.Second; ; s += RecheckInterval {
		x.clock.SetTime(start.Add(s))
		if x.Authorize(ctx, asked) != nil {
			require.LessOrEqual(t, s, time.Minute)
			break
		}
	}
	require.Equal(t, 2, x.reviewed)
}

// TestListByName: who may list all objects may list one by its name, and the server is asked about the
// former alone. Everybody else needs the right to the one.
func TestListByName(t *testing.T) {
	x := newDesk(nil)
	x.connected = true
	review := x.opts.Review
	x.opts.Review = func(ctx context.Context, s authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
		if a := s.ResourceAttributes; s.User == "bob" && (a.Namespace != "shop" || a.Name != "till") {
			return authorizationv1.SubjectAccessReviewStatus{}, nil
		}
		return review(ctx, s)
	}
	list := func(user, namespace, name string) error {
		asked := ask("list", "pods")
		asked.Resource.Namespace, asked.Resource.Name = namespace, name
		asked.Resource.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: "metadata.name=" + name}
		return x.Authorize(WithCaller(context.Background(), &Caller{User: authenticationv1.UserInfo{Username: user}}), asked)
	}
	x.server["alice list pods"], x.server["bob list pods"] = true, true
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, list("alice", "shop", name))
		require.NoError(t, list("alice", "bar", name))
	}
	require.Equal(t, 1, x.reviewed)
	require.NoError(t, list("bob", "shop", "till"))
	require.Error(t, list("bob", "shop", "other"))
	require.Error(t, list("bob", "bar", "till"))

	x.server["alice list pods"] = false
	x.clock.SetTime(start.Add(answerAge))
	require.Error(t, list("alice", "shop", "a"))
}

// TestForwardedWatchAuthorizedAgain: what the server has let in ends if the server refuses it, but not
// if it can't be asked.
func TestForwardedWatchAuthorizedAgain(t *testing.T) {
	x := newDesk(nil)
	ctx := WithCaller(context.Background(), &Caller{User: authenticationv1.UserInfo{Username: "alice"}})
	asked := ask("watch", "pods")
	asked.Continues, asked.Forwarded = true, true
	own := asked
	own.Forwarded = false
	require.Error(t, x.Authorize(ctx, own), "the control")
	require.NoError(t, x.Authorize(ctx, asked), "away")
	x.connected, x.fails = true, true
	require.NoError(t, x.Authorize(ctx, asked), "without an answer")
	x.fails = false
	x.clock.SetTime(start.Add(failedAge))
	require.Error(t, x.Authorize(ctx, asked))
	x.clock.SetTime(start.Add(2 * time.Minute))
	x.server["alice watch pods"] = true
	require.NoError(t, x.Authorize(ctx, asked))
}

// countedFlushes is a database that counts its flushes.
type countedFlushes struct {
	store.DB
	n atomic.Int32
}

func (db *countedFlushes) Flush() error {
	db.n.Add(1)
	return db.DB.Flush()
}

// TestDecisionsAreDurable: decisions are durable a second after the first of them, at once.
func TestDecisionsAreDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &countedFlushes{DB: memory.New()}
		defer db.Close()
		d := openDecisions(t, db)
		for round := range int32(3) {
			for i := range 10 {
				d.note(fmt.Sprint(round, i), "alice", true, false, start)
			}
			require.Equal(t, round, db.n.Load())
			time.Sleep(flushDelay)
			synctest.Wait()
			require.Equal(t, round+1, db.n.Load())
		}
		d.note("bob", "bob", false, false, start)
		time.Sleep(flushDelay)
		synctest.Wait()
		require.Equal(t, int32(3), db.n.Load(), "nothing was stored")
	})
}

// TestDecisionsAreBounded: of more decisions than may be remembered, the newest ones stay. A date in the future is
// not new: a wrong clock has made it.
func TestDecisionsAreBounded(t *testing.T) {
	db := memory.New()
	defer db.Close()
	d := openDecisions(t, db)
	d.note("ahead", "alice", true, false, start.Add(year))
	for i := range maxDecisions + maxDecisions/5 {
		d.note(strconv.Itoa(i), "alice", true, false, start.Add(time.Duration(i)*time.Second))
	}
	require.LessOrEqual(t, count(t, db), maxDecisions)
	now := start.Add(maxDecisions * 1.2 * time.Second)
	require.False(t, d.allowed("0", now, false))
	require.False(t, d.allowed("ahead", now, false))
	require.True(t, d.allowed(strconv.Itoa(maxDecisions+maxDecisions/5-1), now, false))
	require.True(t, d.allowed(strconv.Itoa(maxDecisions/2), now, false))
}

// count returns the number of stored decisions.
func count(t *testing.T, db store.DB) int {
	t.Helper()
	v, err := db.View("decisions")
	require.NoError(t, err)
	defer v.Close()
	return int(v.State().Count)
}

// TestFormerDecisions: decisions that an earlier version has stored, as whole Kubernetes objects, count.
func TestFormerDecisions(t *testing.T) {
	db := memory.New()
	defer db.Close()
	c, err := db.Open(store.Info{ID: "decisions", Group: "snapcache", Version: "v1", Resource: "decisions", Kind: "Decision"})
	require.NoError(t, err)
	o, err := object.Parse([]byte(`{"kind":"Decision","apiVersion":"snapcache/v1","metadata":{"name":"` + decisionName("x") +
		`","resourceVersion":"1"},"at":"2026-11-01T12:00:00Z","user":"2bd806c97f0e00af"}`))
	require.NoError(t, err)
	require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{{Key: o.Key(), Object: o}}}))
	require.NoError(t, c.Close())
	d := openDecisions(t, db)
	require.True(t, d.allowed("x", start.Add(time.Hour), false))
	require.False(t, d.allowed("x", start.Add(25*time.Hour), false))
}

// TestRepeatedDecisionsAreNotWritten spares the disk.
func TestRepeatedDecisionsAreNotWritten(t *testing.T) {
	db := memory.New()
	defer db.Close()
	d := openDecisions(t, db)
	stored := func() time.Time {
		r, err := d.stored.Get(decisionName("x"))
		require.NoError(t, err)
		return r.At
	}
	d.note("x", "alice", true, false, start)
	d.note("x", "alice", true, false, start.Add(2*time.Hour))
	require.Equal(t, start, stored())
	d.note("x", "alice", true, false, start.Add(3*time.Hour))
	require.Equal(t, start.Add(3*time.Hour), stored())
	d.note("x", "alice", true, false, start)
	require.Equal(t, start, stored(), "the clock was set back")
	d.note("y", "alice", false, false, start)
	require.Equal(t, 1, count(t, db))
}

func TestForbidden(t *testing.T) {
	x := newDesk(nil)
	ctx := WithCaller(context.Background(), &Caller{User: authenticationv1.UserInfo{Username: "alice"}})
	x.connected = true
	for _, tc := range []struct {
		name string
		ask  Request
		want string
	}{
		{"everywhere", ask("list", "pods"), `pods is forbidden: User "alice" cannot list resource "pods" in API group "" at the cluster scope`},
		{"one object", Request{Resource: &authorizationv1.ResourceAttributes{
			Verb: "get", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "status", Namespace: "shop", Name: "till",
		}}, `deployments.apps "till" is forbidden: User "alice" cannot get resource "deployments/status" in API group "apps" in the namespace "shop"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := x.Authorize(ctx, tc.ask)
			require.EqualError(t, err, tc.want)
			require.True(t, apierrors.IsForbidden(err))
		})
	}
	x.connected = false
	require.EqualError(t, x.Authorize(ctx, Request{NonResource: &authorizationv1.NonResourceAttributes{Path: "/version", Verb: "get"}}),
		`forbidden: User "alice" cannot get path "/version": the cluster can't be asked, and has not allowed it lately`)
	require.Error(t, x.Authorize(context.Background(), ask("list", "pods")), "a request without a caller")
	require.NoError(t, x.Authorize(WithCaller(context.Background(), &Caller{Local: true}), ask("list", "pods")))
}

// TestRequestID: requests that differ in anything that a decision may depend on are not the same.
func TestRequestID(t *testing.T) {
	seen := map[string]string{}
	for _, tc := range []struct {
		name   string
		change func(*authorizationv1.SubjectAccessReviewSpec)
	}{
		{"none", func(*authorizationv1.SubjectAccessReviewSpec) {}},
		{"user", func(s *authorizationv1.SubjectAccessReviewSpec) { s.User = "bob" }},
		{"uid", func(s *authorizationv1.SubjectAccessReviewSpec) { s.UID = "u" }},
		{"groups", func(s *authorizationv1.SubjectAccessReviewSpec) { s.Groups = []string{"a", "b"} }},
		{"group", func(s *authorizationv1.SubjectAccessReviewSpec) { s.Groups = []string{"ab"} }},
		{"extra", func(s *authorizationv1.SubjectAccessReviewSpec) {
			s.Extra = map[string]authorizationv1.ExtraValue{"k": {"v"}}
		}},
		{"extra 2", func(s *authorizationv1.SubjectAccessReviewSpec) {
			s.Extra = map[string]authorizationv1.ExtraValue{"k": {}, "v": {}}
		}},
		{"verb", func(s *authorizationv1.SubjectAccessReviewSpec) { s.ResourceAttributes.Verb = "watch" }},
		{"apigroup", func(s *authorizationv1.SubjectAccessReviewSpec) { s.ResourceAttributes.Group = "apps" }},
		{"sub", func(s *authorizationv1.SubjectAccessReviewSpec) { s.ResourceAttributes.Subresource = "shop" }},
		{"ns", func(s *authorizationv1.SubjectAccessReviewSpec) { s.ResourceAttributes.Namespace = "shop" }},
		{"name", func(s *authorizationv1.SubjectAccessReviewSpec) { s.ResourceAttributes.Name = "shop" }},
		{"fields", func(s *authorizationv1.SubjectAccessReviewSpec) {
			s.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: "a=b"}
		}},
		{"labels", func(s *authorizationv1.SubjectAccessReviewSpec) {
			s.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: "a=b"}
		}},
		{"path", func(s *authorizationv1.SubjectAccessReviewSpec) {
			s.ResourceAttributes, s.NonResourceAttributes = nil, &authorizationv1.NonResourceAttributes{Path: "/", Verb: "list"}
		}},
	} {
		s := Request{Resource: &authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "pods"}}.
			spec(&Caller{User: authenticationv1.UserInfo{Username: "alice"}})
		tc.change(&s)
		id := requestID(s)
		require.Empty(t, seen[id], tc.name)
		seen[id] = tc.name
	}
	long := func(path string) string {
		return requestID(authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: strings.Repeat("/", 60_000) + path}})
	}
	require.LessOrEqual(t, len(long("a")), maxID)
	require.NotEqual(t, long("a"), long("b"))
	token := func(id string) string {
		return requestID(ask("list", "pods").spec(&Caller{User: authenticationv1.UserInfo{Username: "alice", Extra: map[string]authenticationv1.ExtraValue{credentialID: {id}}}}))
	}
	require.Equal(t, token("1"), token("2"), "a new token of the same user has the same decisions")
}

// BenchmarkAuthorize is the cost of a decision that is known.
func BenchmarkAuthorize(b *testing.B) {
	x := newDesk(nil)
	x.connected = true
	x.server["alice list pods"] = true
	ctx := WithCaller(context.Background(), &Caller{User: authenticationv1.UserInfo{
		Username: "alice", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop", authenticated},
	}})
	for b.Loop() {
		if err := x.Authorize(ctx, ask("list", "pods")); err != nil {
			b.Fatal(err)
		}
	}
}
