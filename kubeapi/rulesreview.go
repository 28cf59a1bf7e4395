package kubeapi

import (
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reviewRules answers a SelfSubjectRulesReview. Like a kube-apiserver's, the answer does not repeat the
// namespace.
func (s *Server) reviewRules(r *request, body *reviewBody) (runtime.Object, error) {
	var asked authorizationv1.SelfSubjectRulesReview
	if err := body.decode(&asked, authorizationv1.SchemeGroupVersion.WithKind(rulesReview)); err != nil {
		return nil, err
	}
	if asked.Spec.Namespace == "" {
		return nil, badRequest("no namespace on request")
	}
	all, err := s.catalog.all()
	if err != nil {
		return nil, err
	}
	review := &authorizationv1.SelfSubjectRulesReview{TypeMeta: asked.TypeMeta}
	if s.isLocal(r) {
		review.Status = localRules(all, asked.Spec.Namespace)
		return review, nil
	}
	var cached []schema.GroupVersionResource
	for _, x := range all {
		if gvr := x.info.GVR(); !slices.Contains(cached, gvr) {
			cached = append(cached, gvr)
		}
	}
	review.Status = s.opts.OwnRules(r.Context(), asked.Spec.Namespace, cached)
	return review, nil
}

// documentPaths are the paths that every local caller may get, as far as they exist.
var documentPaths = []string{"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi/v3", "/openapi/v3/*", "/readyz", "/version", "/version/"}

// localRules returns the rules of a local caller in a namespace: it may read what is cached. A rule can't
// express a selector, so that resources of which a part is cached are in none.
func localRules(all []*served, namespace string) authorizationv1.SubjectRulesReviewStatus {
	resources, parts := map[string][]string{}, []string{} // resources by group
	add := func(group, resource string) {
		if !slices.Contains(resources[group], resource) {
			resources[group] = append(resources[group], resource)
		}
	}
	for _, x := range all {
		switch {
		case !x.has(namespace):
		case !x.scope.Empty():
			parts = append(parts, x.describeScope())
		default:
			add(x.info.Group, x.info.Resource)
			for _, sub := range x.desc.Subresources {
				add(x.info.Group, x.info.Resource+"/"+sub)
			}
		}
	}
	status := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{},
		NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: documentPaths}},
	}
	for _, group := range slices.Sorted(maps.Keys(resources)) {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: []string{string(verbGet), string(verbList), string(verbWatch)}, APIGroups: []string{group}, Resources: resources[group],
		})
	}
	for _, x := range reviews {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: x.Verbs, APIGroups: []string{x.Group}, Resources: []string{x.Resource},
		})
	}
	if len(parts) > 0 {
		status.Incomplete = true
		status.EvaluationError = "no rule can express what is cached in part: " + strings.Join(parts, "; ")
	}
	return status
}
