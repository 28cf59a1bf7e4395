package access

import (
	"context"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The reasons for rules that are not complete.
const (
	notResolved = "the rights that the node authorizer gives to a node are not among the rules"
	notCached   = "the cluster's RBAC objects are not all cached here: " +
		"the rules are those that the cluster has named lately, of cached resources"
)

// OwnRules returns the rules of the context's caller in a namespace, as the status of a
// SelfSubjectRulesReview: by the cached RBAC objects, as a kube-apiserver finds them. If these are not
// cached whole, the rules are the decisions about the given resources that are remembered, and the status
// is incomplete. The server is not asked. The caller has to be a user that the cluster knows.
func (a *Authorizer) OwnRules(
	ctx context.Context, namespace string, cached []schema.GroupVersionResource,
) authorizationv1.SubjectRulesReviewStatus {
	c := CallerOf(ctx)
	rules := a.opts.Rules.current()
	if rules == nil {
		return a.rememberedRules(c, namespace, cached)
	}
	status := rules.of(&c.User, namespace)
	if slices.Contains(c.User.Groups, nodes) && strings.HasPrefix(c.User.Username, nodeUser) {
		status.Incomplete = true
		status.EvaluationError = join(status.EvaluationError, notResolved)
	}
	return status
}

// nodeUser begins the user name of a node.
const nodeUser = "system:node:"

// of returns the rules that are bound to a user, everywhere or in a namespace.
func (s *ruleset) of(user *authenticationv1.UserInfo, namespace string) authorizationv1.SubjectRulesReviewStatus {
	status := emptyRules()
	var seen []grant
	subjects := []string{userSubject(user.Username)}
	for _, group := range user.Groups {
		subjects = append(subjects, groupSubject(group))
	}
	for _, subject := range subjects {
		for _, g := range s.grants[subject] {
			if g.namespace != "" && g.namespace != namespace || slices.Contains(seen, g) {
				continue
			}
			seen = append(seen, g)
			rules, ok := s.roles[g.role]
			if !ok {
				status.EvaluationError = join(status.EvaluationError, g.missing())
			}
			for _, rule := range rules {
				addRule(&status, &rule)
			}
		}
	}
	return status
}

// addRule adds a rule to a status.
func addRule(status *authorizationv1.SubjectRulesReviewStatus, rule *rbacv1.PolicyRule) {
	if len(rule.Resources) > 0 {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
		})
	}
	if len(rule.NonResourceURLs) > 0 {
		status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs,
		})
	}
}

// missing returns the error for a grant of a role that does not exist, in the words of a kube-apiserver.
func (g grant) missing() string {
	kind, name := "clusterrole", g.role
	if _, role, ok := strings.Cut(g.role, "/"); ok {
		kind, name = "role", role
	}
	return kind + `.rbac.authorization.k8s.io "` + name + `" not found`
}

// rememberedRules returns a rule for each resource that the caller may read by decisions of the server: in the
// namespace, or everywhere.
func (a *Authorizer) rememberedRules(
	c *Caller, namespace string, cached []schema.GroupVersionResource,
) authorizationv1.SubjectRulesReviewStatus {
	status := emptyRules()
	status.Incomplete, status.EvaluationError = true, notCached
	for _, gvr := range cached {
		var verbs []string
		for _, verb := range []string{"get", "list", "watch"} {
			if a.recalls(c, verb, gvr, namespace) || a.recalls(c, verb, gvr, "") {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
				Verbs: verbs, APIGroups: []string{gvr.Group}, Resources: []string{gvr.Resource},
			})
		}
	}
	return status
}

// recalls reports whether the server has allowed a request lately.
func (a *Authorizer) recalls(c *Caller, verb string, gvr schema.GroupVersionResource, namespace string) bool {
	ask := Request{Resource: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Namespace: namespace,
	}}
	return a.opts.Decisions.allowed(requestID(ask.spec(c)), a.opts.Clock.Now(), false)
}

// emptyRules returns a status whose lists are empty, not null.
func emptyRules() authorizationv1.SubjectRulesReviewStatus {
	return authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
