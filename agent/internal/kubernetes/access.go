package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// clusterAccess authenticates and authorizes the cluster's users. It stores the cluster's CA, signing
// keys and decisions beside the database.
type clusterAccess struct {
	callers    *access.Authenticator
	authorizer *access.Authorizer
	decisions  store.DB

	all      func() []*collection.Collection
	clock    clock.Clock
	log      *slog.Logger
	dir      string
	clientCA string // the configured file of authorities, empty for the server's

	cluster     atomic.Pointer[upstream.Cluster] // nil until it is connected to
	authorities *authorityFile                   // nil if the server's are used
	questions   *questions
	failed      rate.Sometimes // limits the log lines about questions that the server did not answer
	busy        rate.Sometimes // limits the log lines about questions that could not be asked
	rotated     chan struct{}  // has a value if the cluster signs with a key that is not known
	looked      *lru.Cache     // of collection and key to looked
	saving      sync.Mutex     // held while the keys are stored
}

// openAccess opens the stored decisions, CA and keys of the cluster. callers are the options that do not
// depend on the cluster.
func openAccess(o Options, callers access.AuthenticatorOptions) (*clusterAccess, error) {
	cfg := o.Config().KubernetesAPI.Access
	x := &clusterAccess{
		all: o.All, clock: o.Clock, log: o.Log, dir: o.dir(), clientCA: cfg.ClientCAFile,
		questions: newQuestions(), rotated: make(chan struct{}, 1), looked: lru.New(maxLooked),
		failed: rate.Sometimes{First: 1, Interval: time.Minute}, busy: rate.Sometimes{First: 1, Interval: time.Minute},
	}
	callers.Connected, callers.Review, callers.Lookup = x.connected, x.reviewToken, x.lookup
	callers.Learned, callers.Rotated = x.learned, x.noteRotation
	x.callers = access.NewAuthenticator(callers)
	db, err := o.OpenStore(filepath.Join(x.dir, "decisions.db"))
	if err != nil {
		return nil, fmt.Errorf("remembered decisions: %w", err)
	}
	x.decisions = db
	remembered, err := access.OpenDecisions(db, cfg.RememberFor.Duration, o.Clock.Now(), o.Log)
	if err == nil {
		err = x.load()
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	x.authorizer = access.NewAuthorizer(access.AuthorizerOptions{
		Connected: x.connected, Review: x.reviewAccess, Rules: x.rules(), Decisions: remembered, Clock: o.Clock, Log: o.Log,
	})
	return x, nil
}

func (x *clusterAccess) keysFile() string { return filepath.Join(x.dir, "token-keys.json") }

// load reads the certificate authorities and the stored keys.
func (x *clusterAccess) load() error {
	if err := x.loadClientCA(); err != nil {
		return err
	}
	body, err := os.ReadFile(x.keysFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	keys := &access.Keys{}
	if err == nil {
		err = json.Unmarshal(body, keys)
	}
	if err != nil {
		return &store.Error{Err: fmt.Errorf("%s: %w", x.keysFile(), err), Hint: "remove it, and the agent reads the keys from the server again"}
	}
	x.callers.SetKeys(keys)
	return nil
}

// follow keeps the authorities and the cluster's keys current until ctx ends.
func (x *clusterAccess) follow(ctx context.Context, cluster *upstream.Cluster) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	if x.authorities != nil {
		tasks.Go(func() { x.authorities.follow(ctx, x.clock) })
	}
	tasks.Go(func() { x.renew(ctx, cluster) })
	sleep.Daily(ctx, x.clock, x.log, 0, nil, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		return upstream.Explain(errors.Join(x.readClientCA(ctx, cluster), x.readKeys(ctx, cluster)))
	})
}

const (
	// readTimeout is how long the server may take to answer with its authorities and its keys.
	readTimeout = time.Minute

	// renewEvery is the least time between two reads of keys because of new ones.
	renewEvery = time.Minute
)

// noteRotation notes that the cluster signs with a key that is not known.
func (x *clusterAccess) noteRotation() {
	select {
	case x.rotated <- struct{}{}:
	default:
	}
}

// renew reads the keys again when the cluster signs with a new one, until ctx ends.
func (x *clusterAccess) renew(ctx context.Context, cluster *upstream.Cluster) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.rotated:
		}
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		err := x.readKeys(reading, cluster)
		cancel()
		if err != nil {
			x.log.Warn("the cluster signs tokens with a new key, and its keys can't be read", "error", upstream.Explain(err))
		}
		if sleep.For(ctx, x.clock, renewEvery) != nil {
			return
		}
	}
}

func (x *clusterAccess) readKeys(ctx context.Context, cluster *upstream.Cluster) error {
	issuer, set, err := cluster.SigningKeys(ctx)
	if err != nil {
		return err
	}
	keys, err := access.ParseKeys(issuer, set)
	if err != nil {
		return err
	}
	x.callers.SetKeys(keys)
	return x.saveKeys()
}

// saveKeys stores the newest keys.
func (x *clusterAccess) saveKeys() error {
	x.saving.Lock()
	defer x.saving.Unlock()
	body, err := json.Marshal(x.callers.Keys())
	if err != nil {
		return err
	}
	return files.WriteAtomic(x.keysFile(), body)
}

func (x *clusterAccess) learned() {
	if err := x.saveKeys(); err != nil {
		x.log.Warn("the audiences of the server can't be remembered", "error", err)
	}
}

// close closes the store of decisions. It does nothing if access is off.
func (x *clusterAccess) close() error {
	if x == nil {
		return nil
	}
	return x.decisions.Close()
}

// errNotConnected means that there is no connection to ask the server by.
var errNotConnected = errors.New("the agent has not connected to the server yet")

func (x *clusterAccess) reviewToken(ctx context.Context, client any, token string) (status authenticationv1.TokenReviewStatus, err error) {
	err = x.ask(ctx, client, func(ctx context.Context, c *upstream.Cluster) (err error) {
		status, err = c.ReviewToken(ctx, token)
		return err
	})
	return status, err
}

func (x *clusterAccess) reviewAccess(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (status authorizationv1.SubjectAccessReviewStatus, err error) {
	err = x.ask(ctx, spec.User, func(ctx context.Context, c *upstream.Cluster) (err error) {
		status, err = c.ReviewAccess(ctx, spec)
		return err
	})
	return status, err
}

// ask asks the server about a client, and logs why that fails.
func (x *clusterAccess) ask(ctx context.Context, client any, question func(context.Context, *upstream.Cluster) error) error {
	cluster := x.cluster.Load()
	if cluster == nil {
		return errNotConnected
	}
	seat, err := x.questions.begin(ctx, client)
	if errors.Is(err, access.ErrBusy) {
		x.busy.Do(func() {
			x.log.Warn("refused a client; others of this minute are not logged", "client", client, "reason", err)
		})
	}
	if err != nil {
		return err
	}
	asking, answered := cluster.Link().Await(ctx, 0)
	err = question(asking, cluster)
	answered(err)
	x.questions.end(seat, asking.Err() == nil)
	if err != nil {
		x.failed.Do(func() {
			x.log.Warn("the server can't be asked about a caller: it is decided here; other failures of this minute are not logged", "error", upstream.Explain(err))
		})
	}
	return err
}

// connected reports whether the server can be reached: one of the collections follows it, without doubt.
func (x *clusterAccess) connected() bool {
	return slices.ContainsFunc(x.all(), (*collection.Collection).Connected)
}

// storing iterates over the collections of a resource.
func (x *clusterAccess) storing(resource schema.GroupResource) iter.Seq2[*collection.Collection, store.Collection] {
	return func(yield func(*collection.Collection, store.Collection) bool) {
		for _, c := range x.all() {
			if r := c.Resource(); r == nil || r.GVR.Resource != resource.Resource || r.GVR.Group != resource.Group {
				continue
			}
			if stored := c.Live().Stored; stored != nil && !yield(c, stored) {
				return
			}
		}
	}
}

// lookup finds an object in the collections.
func (x *clusterAccess) lookup(resource schema.GroupResource, namespace, name string) (uid string, found access.Presence) {
	for c, stored := range x.storing(resource) {
		if in := stored.Info().Namespace; in != "" && in != namespace || !stored.State().Synced {
			continue
		}
		switch o := x.look(versionOf(c, stored), object.Key(namespace, name)); o.presence {
		case access.Present:
			return o.uid, access.Present
		case access.Missing:
			found = access.Missing
		}
	}
	return "", found
}

// maxLooked limits the remembered objects to which tokens are bound.
const maxLooked = 2048

// looked is the result of looking up an object in a version of its collection. It is immutable.
type looked struct {
	version  access.Version
	uid      string
	presence access.Presence
}

// look finds an object in a collection, as of a version or later. It reads the store only if that has
// changed since it did last.
func (x *clusterAccess) look(version access.Version, key string) looked {
	id := struct {
		of  store.Collection
		key string
	}{version.Of, key}
	if was, _ := x.looked.Get(id); was != nil {
		if o, _ := was.(looked); o.version == version {
			return o
		}
	}
	o := looked{version: version}
	h, err := version.Of.Header(key)
	switch {
	case err == nil:
		o.uid, o.presence = h.UID, access.Present
	case errors.Is(err, store.ErrNotFound):
		o.presence = access.Missing
	default:
		return o // it may be repaired, or readable at the next time
	}
	x.looked.Add(id, o)
	return o
}

// versionOf returns the version of a collection, which is complete.
func versionOf(c *collection.Collection, stored store.Collection) access.Version {
	return access.Version{Of: stored, Changes: c.Tracker.Changes()}
}

// rules returns the cached RBAC objects, of collections that have all of a resource.
func (x *clusterAccess) rules() *access.Rules {
	source := func(resource string) access.Source {
		gr := schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: resource}
		return func() access.Version {
			for c, stored := range x.storing(gr) {
				if i := stored.Info(); i.Namespace == "" && i.LabelSelector == "" && i.FieldSelector == "" && stored.State().Synced {
					return versionOf(c, stored)
				}
			}
			return access.Version{}
		}
	}
	return &access.Rules{
		ClusterRoles: source("clusterroles"), ClusterRoleBindings: source("clusterrolebindings"),
		Roles: source("roles"), RoleBindings: source("rolebindings"),
	}
}
