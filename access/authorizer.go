package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/snapcache/snapcache/internal/quota"
)

// maxDecisions limits the decisions that are held in memory.
const maxDecisions = 10000

// AuthorizerOptions are the settings of an Authorizer.
type AuthorizerOptions struct {
	// Connected reports whether the cluster's server can be reached.
	Connected func() bool

	// Review asks the server for its decision. If it fails, the decision is made here, but ErrBusy refuses
	// the request for now.
	Review func(context.Context, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error)

	// Rules are the cached RBAC objects; nil for none.
	Rules *Rules

	// Decisions remembers the requests that the server has allowed; nil remembers none.
	Decisions *Decisions

	Clock clock.PassiveClock
	Log   *slog.Logger
}

// Authorizer decides on the requests of callers. It is safe for concurrent use.
type Authorizer struct {
	opts     AuthorizerOptions
	deciding singleflight.Group
	recent   *lru.Cache   // of request to *decision
	logged   *quota.Quota // of requests, for lines about refusals
}

// maxLogged is the number of refused requests that are remembered, so that each is logged once a minute.
const maxLogged = 1000

// NewAuthorizer returns an Authorizer.
func NewAuthorizer(opts AuthorizerOptions) *Authorizer {
	return &Authorizer{opts: opts, recent: lru.New(maxDecisions), logged: quota.New(1/answerAge.Seconds(), 1, maxLogged)}
}

// decision is the decision on a request. It is immutable.
type decision struct {
	status   authorizationv1.SubjectAccessReviewStatus
	at       time.Time
	reviewed bool         // by the server
	failed   bool         // the server was asked, and gave no answer
	rules    rulesVersion // at that time
}

// counts reports whether a decision is young enough for a request, and was made as it would be now.
func (d *decision) counts(ask Request, now time.Time, rules rulesVersion, connected bool) bool {
	maxAge := answerAge
	switch {
	case d.rules != rules, d.reviewed != connected && !d.failed:
		return false
	case d.failed:
		maxAge = failedAge
	case ask.Continues:
		maxAge -= RecheckInterval // at the next time, it would be too old
	}
	age := now.Sub(d.at)
	return age >= 0 && age < maxAge
}

// Authorize returns nil if the context's caller may make the request, and else the error of a
// kube-apiserver.
func (a *Authorizer) Authorize(ctx context.Context, ask Request) error {
	c := CallerOf(ctx)
	if c == nil {
		return ask.forbidden("", "the caller is not known")
	}
	if c.Local {
		return nil
	}
	d, err := a.judge(ctx, ask, c)
	switch {
	case err != nil:
		return err
	case d.status.Allowed, ask.Forwarded && !d.reviewed: // the latter until the server can be asked
		return nil
	}
	if spec := ask.spec(c); a.logged.Allow(requestID(spec), a.opts.Clock.Now()) {
		a.logRefusal(spec, d)
	}
	return ask.forbidden(c.User.Username, d.status.Reason)
}

// judge returns the decision on a request of a caller that the cluster knows. The error is a kube-apiserver's for
// ErrBusy.
func (a *Authorizer) judge(ctx context.Context, ask Request, c *Caller) (*decision, error) {
	if all, ok := ask.all(); ok {
		spec := all.spec(c)
		if d, err := a.decide(ctx, all, requestID(spec), spec); err == nil && d.status.Allowed {
			return d, nil
		}
	}
	spec := ask.spec(c)
	d, err := a.decide(ctx, ask, requestID(spec), spec)
	if err != nil {
		return nil, apierrors.NewTooManyRequests(err.Error(), 1)
	}
	return d, nil
}

// decide returns a decision on a request, with its ID and its review, that is young enough for it. The
// error is ErrBusy.
func (a *Authorizer) decide(ctx context.Context, ask Request, id string, spec authorizationv1.SubjectAccessReviewSpec) (*decision, error) {
	now, rules, connected := a.opts.Clock.Now(), a.opts.Rules.version(), a.opts.Connected()
	if x, ok := a.recent.Get(id); ok {
		if d, _ := x.(*decision); d.counts(ask, now, rules, connected) {
			return d, nil
		}
	}
	x, err, _ := a.deciding.Do(id, func() (any, error) {
		var d *decision
		if connected {
			var err error
			if d, err = a.review(ctx, id, spec); err != nil {
				return d, err
			}
		}
		if d == nil {
			d = a.remembered(id, spec, now)
			d.failed = connected
		}
		d.at, d.rules = a.opts.Clock.Now(), rules
		a.recent.Add(id, d)
		return d, nil
	})
	d, _ := x.(*decision)
	return d, err
}

func (a *Authorizer) logRefusal(spec authorizationv1.SubjectAccessReviewSpec, d *decision) {
	log := a.opts.Log.With("user", spec.User, "reason", d.status.Reason)
	if n := spec.NonResourceAttributes; n != nil {
		log.Info("refused", "verb", n.Verb, "path", n.Path)
		return
	}
	r := spec.ResourceAttributes
	log.Info("refused", "verb", r.Verb, "resource", schema.GroupResource{Group: r.Group, Resource: r.Resource}, "subresource", r.Subresource,
		"namespace", r.Namespace, "name", r.Name)
}

// reasonRBAC begins the reason if RBAC objects have allowed a request. The cached objects may lag behind.
const reasonRBAC = "RBAC: allowed by "

// review asks the server, and returns nil if it gives no answer. The error is ErrBusy.
func (a *Authorizer) review(ctx context.Context, id string, spec authorizationv1.SubjectAccessReviewSpec) (*decision, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
	defer cancel()
	status, err := a.opts.Review(ctx, spec)
	switch {
	case errors.Is(err, ErrBusy):
		return nil, ErrBusy
	case err != nil:
		return nil, nil //nolint:nilnil,nilerr // it is decided here
	}
	status.Allowed = status.Allowed && !status.Denied
	d := &decision{status: status, reviewed: true}
	byRules := status.Allowed && (strings.HasPrefix(status.Reason, reasonRBAC) || a.opts.Rules.allow(spec))
	a.opts.Decisions.note(id, spec.User, status.Allowed, byRules, a.opts.Clock.Now())
	return d, nil
}

// remembered decides without the server. The rules decide on requests that they allowed when the server
// was asked: they may have changed since. Everything else that it allowed, such as by the node authorizer,
// is remembered.
func (a *Authorizer) remembered(id string, spec authorizationv1.SubjectAccessReviewSpec, now time.Time) *decision {
	var status authorizationv1.SubjectAccessReviewStatus
	switch {
	case a.opts.Rules.allow(spec):
		status.Allowed, status.Reason = true, "the cluster can't be asked: the cached RBAC objects allow it"
	case a.opts.Decisions.allowed(id, now, a.opts.Rules.version() != rulesVersion{}):
		status.Allowed, status.Reason = true, "the cluster can't be asked: it has allowed it lately"
	default:
		status.Reason = "the cluster can't be asked, and has not allowed it lately"
	}
	return &decision{status: status}
}

// maxID limits the bytes that a request's identity takes in memory: its path and its selectors may be long.
const maxID = 256

// requestID identifies a request: two with the same have the same answer. Values that name only the
// credential are not part of it.
func requestID(spec authorizationv1.SubjectAccessReviewSpec) string {
	b := appendUser(make([]byte, 0, maxID), spec.User, spec.UID, spec.Groups, spec.Extra)
	add := func(values ...string) { b = appendAll(b, values...) }
	if r := spec.ResourceAttributes; r != nil {
		add(r.Verb, r.Group, r.Version, r.Resource, r.Subresource, r.Namespace, r.Name)
		if f := r.FieldSelector; f != nil {
			add("fields", f.RawSelector)
			if len(f.Requirements) > 0 { // of a review
				add("required", fmt.Sprintf("%q", f.Requirements))
			}
		}
		if l := r.LabelSelector; l != nil {
			add("labels", l.RawSelector)
			if len(l.Requirements) > 0 {
				add("required", fmt.Sprintf("%q", l.Requirements))
			}
		}
	}
	if r := spec.NonResourceAttributes; r != nil {
		add("path", r.Verb, r.Path)
	}
	if len(b) > maxID {
		sum := sha256.Sum256(b)
		return string(sum[:])
	}
	return string(b)
}
