package access

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// maxDecisions limits the decisions that are held in memory.
const maxDecisions = 10000

// Authorizer decides whether callers may do what they ask for. It is safe for concurrent use. Its
// fields are set before the first call.
type Authorizer struct {
	// Connected reports whether the cluster's server can be reached.
	Connected func() bool

	// Review asks the server for its decision.
	Review func(context.Context, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error)

	// Rules are the cached RBAC objects; nil for none.
	Rules *Rules

	// Decisions remembers what the server has allowed; nil for nothing.
	Decisions *Decisions

	Clock clock.PassiveClock
	Log   *slog.Logger

	reviews singleflight.Group
	recent  *lru.Cache // of request to *decision
}

// NewAuthorizer returns an Authorizer without fields.
func NewAuthorizer() *Authorizer { return &Authorizer{recent: lru.New(maxDecisions)} }

// decision is what was decided on a request. It is immutable.
type decision struct {
	allowed  bool
	reason   string
	at       time.Time
	reviewed bool         // by the server
	rules    rulesVersion // at that time
}

// Authorize returns nil if the context's caller may do what it asks for, and else the error of a
// kube-apiserver.
func (a *Authorizer) Authorize(ctx context.Context, ask Request) error {
	c := CallerOf(ctx)
	if c == nil {
		return ask.forbidden("", "the caller is not known")
	}
	if c.Local {
		return nil
	}
	d := a.decide(ctx, ask, ask.spec(c))
	if d.allowed {
		return nil
	}
	return ask.forbidden(c.User.Username, d.reason)
}

// decide returns a decision on a request, whose review is spec, that is young enough for it.
func (a *Authorizer) decide(ctx context.Context, ask Request, spec authorizationv1.SubjectAccessReviewSpec) *decision {
	id, now, rules := requestID(spec), a.Clock.Now(), a.Rules.version()
	connected, maxAge := a.Connected(), answerAge
	if ask.Continues {
		maxAge -= RecheckInterval // at the next time, the answer would be too old
	}
	if x, ok := a.recent.Get(id); ok && (connected || !ask.Forwarded) {
		d, _ := x.(*decision)
		age := now.Sub(d.at)
		if age >= 0 && age < maxAge && d.rules == rules && d.reviewed == connected {
			return d
		}
	}
	var d *decision
	if connected {
		d = a.review(ctx, id, spec, rules)
	}
	if d == nil && ask.Forwarded {
		return &decision{allowed: true} // until the server can be asked
	}
	if d == nil {
		d = a.remembered(id, spec, now)
		d.at, d.rules = now, rules
		if !connected { // otherwise, the server is asked again at the next request
			a.recent.Add(id, d)
		}
	}
	if !d.allowed {
		a.logRefusal(spec, d)
	}
	return d
}

// logRefusal logs a refusal when it is decided: at most once a minute for each request.
func (a *Authorizer) logRefusal(spec authorizationv1.SubjectAccessReviewSpec, d *decision) {
	log := a.Log.With("user", spec.User, "reason", d.reason)
	if n := spec.NonResourceAttributes; n != nil {
		log.Info("refused", "verb", n.Verb, "path", n.Path)
		return
	}
	r := spec.ResourceAttributes
	log.Info("refused", "verb", r.Verb, "resource", schema.GroupResource{Group: r.Group, Resource: r.Resource}, "subresource", r.Subresource,
		"namespace", r.Namespace, "name", r.Name)
}

// reasonRBAC begins the reason of what RBAC objects have allowed. The cached ones may lag behind those.
const reasonRBAC = "RBAC: allowed by "

// review asks the server, and returns nil if it gives no answer.
func (a *Authorizer) review(ctx context.Context, id string, spec authorizationv1.SubjectAccessReviewSpec, rules rulesVersion) *decision {
	x, _, _ := a.reviews.Do(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		status, err := a.Review(ctx, spec)
		if err != nil {
			return (*decision)(nil), nil //nolint:nilerr // it is decided here
		}
		d := &decision{allowed: status.Allowed && !status.Denied, reason: status.Reason, at: a.Clock.Now(), reviewed: true, rules: rules}
		a.recent.Add(id, d)
		byRules := d.allowed && (strings.HasPrefix(d.reason, reasonRBAC) || a.Rules.allow(spec))
		a.Decisions.note(id, spec.User, d.allowed, byRules, d.at)
		return d, nil
	})
	d, _ := x.(*decision)
	return d
}

// remembered decides without the server. What the rules allowed when the server was asked, the rules
// decide: they may have changed since. Everything else that it allowed, such as by the node authorizer,
// is remembered.
func (a *Authorizer) remembered(id string, spec authorizationv1.SubjectAccessReviewSpec, now time.Time) *decision {
	if a.Rules.allow(spec) {
		return &decision{allowed: true}
	}
	if a.Decisions.allowed(id, now, a.Rules.version() != rulesVersion{}) {
		return &decision{allowed: true}
	}
	return &decision{reason: "the cluster can't be asked, and has not allowed it lately"}
}

// maxID limits the bytes that a request's identity takes in memory: its path and its selectors may be long.
const maxID = 256

// requestID identifies a request: two with the same have the same answer. What names only the
// credential is not part of it.
func requestID(spec authorizationv1.SubjectAccessReviewSpec) string {
	b := appendUser(make([]byte, 0, maxID), spec.User, spec.UID, spec.Groups, spec.Extra)
	add := func(values ...string) { b = appendAll(b, values...) }
	if r := spec.ResourceAttributes; r != nil {
		add(r.Verb, r.Group, r.Version, r.Resource, r.Subresource, r.Namespace, r.Name)
		if r.FieldSelector != nil {
			add("fields", r.FieldSelector.RawSelector)
		}
		if r.LabelSelector != nil {
			add("labels", r.LabelSelector.RawSelector)
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
