package kubernetes

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/pipeline"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/upstream"
)

const (
	issuer  = "https://kubernetes.default.svc"
	account = "system:serviceaccount:shop:till"
	rbac    = "rbac.authorization.k8s.io"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// world is the access of an agent that caches what a node's does in a file, with the server that it asks.
type world struct {
	t          testing.TB
	opts       Options
	x          *clusterAccess
	callers    *access.Authenticator
	authorizer *access.Authorizer
	cluster    *upstream.Cluster
	clock      *clocktesting.FakeClock
	queues     map[string]*deltafifo.Queue // of the collections, by their IDs
	stored     map[string]store.Collection

	*server
}

// server is a server that answers reviews.
type server struct {
	key *ecdsa.PrivateKey

	mu     sync.Mutex
	keyID  string
	asked  map[string]int // how often, by the path
	denied map[string]bool
	answer func(w http.ResponseWriter, r *http.Request) bool // before it does; nil for none
	reason string
}

// newWorld returns an agent with the collections of the profile for a node, which are empty.
func newWorld(t testing.TB, change ...func(*config.AgentConfiguration)) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(start), queues: map[string]*deltafifo.Queue{}, stored: map[string]store.Collection{},
		server: &server{key: key, keyID: "k1", asked: map[string]int{}, denied: map[string]bool{}, reason: "RBAC: allowed by a binding"},
	}
	path := filepath.Join(t.TempDir(), "snapcache.db")
	db, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	var all []*collection.Collection
	for _, gr := range []schema.GroupResource{
		{Resource: "nodes"}, {Resource: "pods"}, {Resource: "configmaps"}, {Resource: "services"},
		{Group: "discovery.k8s.io", Resource: "endpointslices"}, {Resource: "namespaces"}, {Group: "networking.k8s.io", Resource: "servicecidrs"},
		{Group: "node.k8s.io", Resource: "runtimeclasses"}, {Resource: "persistentvolumeclaims"}, {Resource: "persistentvolumes"},
		{Group: "storage.k8s.io", Resource: "volumeattachments"}, {Group: "storage.k8s.io", Resource: "csidrivers"},
		{Group: "storage.k8s.io", Resource: "csinodes"}, {Resource: "serviceaccounts"},
		{Group: rbac, Resource: "roles"}, {Group: rbac, Resource: "rolebindings"},
		{Group: rbac, Resource: "clusterroles"}, {Group: rbac, Resource: "clusterrolebindings"},
		{Group: "apps", Resource: "deployments"}, {Group: "batch", Resource: "jobs"},
	} {
		c := collection.New(collection.Spec{ID: gr.String()}, collection.Options{DB: db, Clock: w.clock, Log: log})
		require.NoError(t, c.Open(upstream.Resource{GVR: gr.WithVersion("v1"), Kind: gr.Resource}))
		all = append(all, c)
		w.follow(c)
	}
	cfg := &config.AgentConfiguration{}
	cfg.Store.Path = path
	cfg.KubernetesAPI.Access.Enabled = true
	cfg.KubernetesAPI.Access.RememberFor.Duration = 24 * time.Hour
	for _, f := range change {
		f(cfg)
	}
	w.opts = Options{
		Config: func() *config.AgentConfiguration { return cfg }, All: func() []*collection.Collection { return all }, Clock: w.clock, Log: log,
		OpenStore: func(path string) (store.DB, error) { return bolt.Open(path, bolt.Options{}) },
	}
	srv := httptest.NewServer(w.server)
	t.Cleanup(srv.Close)
	w.cluster, err = upstream.New(&rest.Config{Host: srv.URL})
	require.NoError(t, err)
	t.Cleanup(w.cluster.Close)
	w.open()
	return w
}

// open opens the access.
func (w *world) open() {
	w.t.Helper()
	var err error
	w.x, err = openAccess(w.opts, access.AuthenticatorOptions{Clock: w.clock})
	require.NoError(w.t, err)
	w.callers, w.authorizer = w.x.callers, w.x.authorizer
	w.t.Cleanup(func() { require.NoError(w.t, w.x.close()) })
	w.x.cluster.Store(w.cluster)
	issuer, keys, err := w.cluster.SigningKeys(w.t.Context())
	require.NoError(w.t, err)
	parsed, err := access.ParseKeys(issuer, keys)
	require.NoError(w.t, err)
	w.callers.SetKeys(parsed)
}

// follow runs the loop of a collection, as an agent does.
func (w *world) follow(c *collection.Collection) {
	w.t.Helper()
	stored := c.Live().Stored
	queue := deltafifo.New(deltafifo.Options{KnownObjects: pipeline.KnownObjects{Collection: stored}})
	queue.Start("")
	loop := pipeline.NewLoop(pipeline.LoopOptions{
		Queue: queue, Collection: stored, Sinks: []pipeline.Sink{c.Tracker}, Clock: w.clock,
	})
	done := make(chan error)
	go func() { done <- loop.Run(context.Background()) }()
	w.t.Cleanup(func() { queue.Close(); require.NoError(w.t, <-done) })
	w.queues[c.ID], w.stored[c.ID] = queue, stored
	w.list(c.ID, "100")
	c.Tracker.Phase(reflector.PhaseWatching, nil)
}

// settle waits until a collection has all that was queued.
func (w *world) settle(id string) {
	w.t.Helper()
	queue := w.queues[id]
	require.NoError(w.t, queue.BeginReplace(w.t.Context(), deltafifo.Replace{}))
	queue.AbortReplace()
	require.Eventually(w.t, func() bool { return !queue.ListPending() }, patience, time.Millisecond)
}

// list makes a list that becomes the content of a collection.
func (w *world) list(id, rv string, objects ...*object.Object) {
	w.t.Helper()
	queue := w.queues[id]
	require.NoError(w.t, queue.BeginReplace(w.t.Context(), deltafifo.Replace{Reason: string(store.ReasonInitial), Cluster: "c"}))
	for _, o := range objects {
		require.NoError(w.t, queue.ReplaceItem(o))
	}
	require.NoError(w.t, queue.EndReplace(rv))
	w.settle(id)
}

// objectOf returns an object with further fields.
func (w *world) objectOf(namespace, name, uid string, rv int, fields map[string]any) *object.Object {
	w.t.Helper()
	all := map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name, "uid": uid, "resourceVersion": fmt.Sprint(rv)}}
	for k, v := range fields {
		all[k] = v
	}
	raw, err := json.Marshal(all)
	require.NoError(w.t, err)
	o, err := object.Parse(raw)
	require.NoError(w.t, err)
	return o
}

// reader returns a ClusterRole that may list resources.
func (w *world) reader(rv int, resources ...string) *object.Object {
	return w.objectOf("", "reader", "r1", rv, map[string]any{
		"rules": []map[string]any{{"verbs": []string{"list", "watch"}, "apiGroups": []string{""}, "resources": resources}},
	})
}

// binding returns a ClusterRoleBinding of that role for a user.
func (w *world) binding(rv int, user string) *object.Object {
	return w.objectOf("", "readers", "b1", rv, map[string]any{
		"roleRef":  map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": "reader"},
		"subjects": []map[string]any{{"apiGroup": rbac, "kind": "User", "name": user}},
	})
}

// populate caches a pod with its service account, and its right to list pods, among so many others.
func (w *world) populate(others ...int) {
	w.t.Helper()
	pods, accounts := []*object.Object{w.objectOf("shop", "till-0", "p1", 1, nil)}, []*object.Object{w.objectOf("shop", "till", "sa1", 1, nil)}
	for _, n := range others {
		for i := range n {
			name := fmt.Sprintf("other-%04d", i)
			pods = append(pods, w.objectOf("shop", name, "p-"+name, 1, nil))
			accounts = append(accounts, w.objectOf("shop", name, "sa-"+name, 1, nil))
		}
	}
	w.list("pods", "100", pods...)
	w.list("serviceaccounts", "100", accounts...)
	w.list("clusterroles."+rbac, "100", w.reader(1, "pods"))
	w.list("clusterrolebindings."+rbac, "100", w.binding(1, account))
}

// token returns a token of the pod, signed with a key of an ID.
func (w *world) token(keyID, id string) string {
	w.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: crypto.Signer(w.key), KeyID: keyID}}, nil)
	require.NoError(w.t, err)
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": issuer, "aud": []string{issuer}, "sub": account, "jti": id,
		"iat": start.Unix(), "nbf": start.Unix(), "exp": start.Add(24 * time.Hour).Unix(),
		"kubernetes.io": map[string]any{
			"namespace": "shop", "serviceaccount": map[string]any{"name": "till", "uid": "sa1"},
			"pod": map[string]any{"name": "till-0", "uid": "p1"}, "node": map[string]any{"name": "edge-1", "uid": "n1"},
		},
	}).Serialize()
	require.NoError(w.t, err)
	return token
}

func requestOf(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.RemoteAddr = "127.0.0.1:40000"
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func asking(verb, resource string) access.Request {
	return access.Request{Resource: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: resource}}
}

// pass authenticates and authorizes a list of pods.
func (w *world) pass(r *http.Request) error {
	c, err := w.callers.Caller(r)
	if err != nil {
		return err
	}
	return w.authorizer.Authorize(access.WithCaller(r.Context(), c), asking("list", "pods"))
}

// may reports whether a user is let in.
func (w *world) may(user, verb, resource string) bool { return w.ask(user, verb, resource) == nil }

func (w *world) ask(user, verb, resource string) error {
	c := &access.Caller{User: authenticationv1.UserInfo{Username: user}}
	return w.authorizer.Authorize(access.WithCaller(w.t.Context(), c), asking(verb, resource))
}

// disconnect ends the watches of all collections, for longer than they count as connected.
func (w *world) disconnect() {
	for _, c := range w.opts.All() {
		c.Tracker.Phase(reflector.PhaseWaiting, nil)
	}
	w.clock.Step(time.Minute)
}

const (
	tokenReviews  = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	keySet        = "/openid/v1/jwks"
	clientCA      = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
)

// times returns how often the server was asked at a path.
func (s *server) times(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// ServeHTTP accepts all tokens as those of the account, and allows what is not denied.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path]++
	answer, keyID := s.answer, s.keyID
	s.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch r.URL.Path {
	case tokenReviews:
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
			Username: account, UID: "sa1", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{
				"authentication.kubernetes.io/pod-name": {"till-0"}, "authentication.kubernetes.io/pod-uid": {"p1"},
				"authentication.kubernetes.io/node-name": {"edge-1"}, "authentication.kubernetes.io/node-uid": {"n1"},
				"authentication.kubernetes.io/credential-id": {"JTI=j1"},
			},
		}}
		reply(review)
	case accessReviews:
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		a := review.Spec.ResourceAttributes
		s.mu.Lock()
		review.Status.Allowed, review.Status.Reason = !s.denied[review.Spec.User+" "+a.Verb+" "+a.Resource], s.reason
		s.mu.Unlock()
		reply(review)
	case "/.well-known/openid-configuration":
		reply(map[string]string{"issuer": issuer})
	case keySet:
		reply(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: s.key.Public(), KeyID: keyID, Algorithm: "ES256", Use: "sig"}}})
	default:
		http.NotFound(w, r)
	}
}
