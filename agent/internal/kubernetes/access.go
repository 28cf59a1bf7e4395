package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/kubeapi/serving"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// clusterAccess is how the cluster's users are let in. What it has to know of the cluster is kept
// beside the database.
type clusterAccess struct {
	*API
	callers   *access.Authenticator
	decisions store.DB
	asking    chan struct{} // has a value for each question that the server is asked
	saving    sync.Mutex    // held while the keys are stored
}

// maxAsked limits the questions that the server is asked at once: strangers with many tokens must not
// fill a thin link.
const maxAsked = 16

// openAccess opens what is kept of the cluster, and makes the Authorizer.
func (a *API) openAccess(callers *access.Authenticator) (*clusterAccess, *access.Authorizer, error) {
	x := &clusterAccess{API: a, callers: callers, asking: make(chan struct{}, maxAsked)}
	db, err := a.OpenStore(filepath.Join(a.dir(), "decisions.db"))
	if err != nil {
		return nil, nil, fmt.Errorf("remembered decisions: %w", err)
	}
	x.decisions = db
	remembered, err := access.OpenDecisions(db, a.Config().KubernetesAPI.Access.RememberFor.Duration, a.Log)
	if err == nil {
		err = x.load()
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	callers.Connected, callers.Review, callers.Lookup = a.connected, x.reviewToken, x.lookup
	callers.Learned = x.learned
	decider := access.NewAuthorizer()
	decider.Connected, decider.Review, decider.Decisions, decider.Clock = a.connected, x.reviewAccess, remembered, a.Clock
	decider.Rules, decider.Log = x.rules(), a.Log
	return x, decider, nil
}

func (x *clusterAccess) clientCAFile() string { return filepath.Join(x.dir(), "client-ca.crt") }
func (x *clusterAccess) keysFile() string     { return filepath.Join(x.dir(), "token-keys.json") }

// load reads what is kept of the cluster, and the configured authorities.
func (x *clusterAccess) load() error {
	file := x.Config().KubernetesAPI.Access.ClientCAFile
	if file == "" {
		file = x.clientCAFile()
	}
	pem, err := os.ReadFile(file)
	if err == nil {
		err = x.callers.SetClientCA(pem)
	}
	if err != nil && (x.Config().KubernetesAPI.Access.ClientCAFile != "" || !errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("%s: %w", file, err)
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
		return fmt.Errorf("%s: %w: remove it, and the agent reads the keys from the server again", x.keysFile(), err)
	}
	x.callers.SetKeys(keys)
	return nil
}

// follow keeps the cluster's authorities and keys current until ctx ends.
func (x *clusterAccess) follow(ctx context.Context, cluster *upstream.Cluster) {
	sleep.Daily(ctx, x.Clock, x.Log, 0, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return upstream.Explain(errors.Join(x.readClientCA(ctx, cluster), x.readKeys(ctx, cluster)))
	})
}

func (x *clusterAccess) readClientCA(ctx context.Context, cluster *upstream.Cluster) error {
	if x.Config().KubernetesAPI.Access.ClientCAFile != "" {
		return nil
	}
	pem, err := cluster.ClientCA(ctx)
	if err != nil {
		return err
	}
	if err := x.callers.SetClientCA(pem); err != nil {
		return err
	}
	return serving.WriteFile(x.clientCAFile(), pem)
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
	return serving.WriteFile(x.keysFile(), body)
}

func (x *clusterAccess) learned() {
	if err := x.saveKeys(); err != nil {
		x.Log.Warn("the audiences of the server can't be remembered", "error", err)
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

func (x *clusterAccess) reviewToken(ctx context.Context, token string) (status authenticationv1.TokenReviewStatus, err error) {
	err = x.ask(ctx, func(c *upstream.Cluster) (err error) {
		status, err = c.ReviewToken(ctx, token)
		return err
	})
	return status, err
}

func (x *clusterAccess) reviewAccess(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (status authorizationv1.SubjectAccessReviewStatus, err error) {
	err = x.ask(ctx, func(c *upstream.Cluster) (err error) {
		status, err = c.ReviewAccess(ctx, spec)
		return err
	})
	return status, err
}

// ask asks the server, and logs why that fails.
func (x *clusterAccess) ask(ctx context.Context, question func(*upstream.Cluster) error) error {
	cluster := x.cluster.Load()
	if cluster == nil {
		return errNotConnected
	}
	select {
	case x.asking <- struct{}{}:
		defer func() { <-x.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := question(cluster)
	if err != nil {
		x.Log.Warn("the server can't be asked about a caller: it is decided here", "error", upstream.Explain(err))
	}
	return err
}

// connected reports whether the server can be reached: one of the collections follows it.
func (a *API) connected() bool {
	for _, c := range a.All() {
		if s := c.Served(); s != nil && s.Freshness().Connected {
			return true
		}
	}
	return false
}

// storing iterates over the collections of a resource.
func (x *clusterAccess) storing(resource schema.GroupResource) iter.Seq2[*collection.Collection, store.Collection] {
	return func(yield func(*collection.Collection, store.Collection) bool) {
		for _, c := range x.All() {
			if r := c.Resource(); r == nil || r.GVR.Resource != resource.Resource || r.GVR.Group != resource.Group {
				continue
			}
			if stored, _, _, _ := c.Live(); stored != nil && !yield(c, stored) {
				return
			}
		}
	}
}

// lookup finds an object in the collections.
func (x *clusterAccess) lookup(resource schema.GroupResource, namespace, name string) (uid string, found access.Presence) {
	for _, stored := range x.storing(resource) {
		if in := stored.Info().Namespace; in != "" && in != namespace || !stored.State().Synced {
			continue
		}
		h, err := stored.Header(object.Key(namespace, name))
		switch {
		case err == nil:
			return h.UID, access.Present
		case errors.Is(err, store.ErrNotFound):
			found = access.Missing
		}
	}
	return "", found
}

// rules returns the cached RBAC objects.
func (x *clusterAccess) rules() *access.Rules {
	source := func(resource string) access.Source {
		gr := schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: resource}
		return access.Source{
			Version: func() access.Version {
				c, stored := x.whole(gr)
				if stored == nil || !stored.State().Synced {
					return access.Version{}
				}
				return access.Version{Of: stored, Changes: c.Tracker.Changes()}
			},
			View: func() (store.View, error) {
				if _, stored := x.whole(gr); stored != nil {
					return stored.View()
				}
				return nil, store.ErrNoCollection
			},
		}
	}
	return &access.Rules{
		ClusterRoles: source("clusterroles"), ClusterRoleBindings: source("clusterrolebindings"),
		Roles: source("roles"), RoleBindings: source("rolebindings"),
	}
}

// whole returns the collection of all objects of a resource, nil if there is none.
func (x *clusterAccess) whole(resource schema.GroupResource) (*collection.Collection, store.Collection) {
	for c, stored := range x.storing(resource) {
		if i := stored.Info(); i.Namespace == "" && i.LabelSelector == "" && i.FieldSelector == "" {
			return c, stored
		}
	}
	return nil, nil
}
