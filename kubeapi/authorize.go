package kubeapi

import (
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/kubeapi/internal/selector"
)

// allowed answers with an error unless the caller may send a request.
func (s *Server) allowed(w http.ResponseWriter, r *request) bool {
	if s.opts.Authorize == nil {
		return true
	}
	err := s.opts.Authorize(r.Context(), asked(r))
	if err == nil {
		return true
	}
	why := RefusedForbidden
	if apierrors.IsTooManyRequests(err) {
		why = RefusedRequests
	} else {
		w.Header().Set("X-Content-Type-Options", "nosniff") // as a kube-apiserver does
	}
	s.opts.Metrics.Refused(why)
	sendError(w, r, err)
	return false
}

// asked returns the attributes of a request, as a kube-apiserver's authorizer gets them.
func asked(r *request) access.Request {
	p := r.path
	if p.Resource == "" {
		return access.Request{NonResource: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}}
	}
	a := &authorizationv1.ResourceAttributes{
		Verb: string(r.verb), Group: p.Group, Version: p.Version, Resource: p.Resource,
		Subresource: p.subresource, Namespace: p.namespace, Name: p.name,
	}
	if p.Resource == "namespaces" && p.namespace == "" {
		a.Namespace = p.name // a namespace is in itself
	}
	if r.verb == verbList || r.verb == verbWatch {
		byLabel, byField := r.query.Get("labelSelector"), r.query.Get("fieldSelector")
		if selector.TooLong(byLabel, byField) != nil { // it is not answered: the question without them is the same for all
			byLabel, byField = "", ""
		}
		if byField != "" {
			a.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: byField}
			if a.Name == "" {
				a.Name = selectedName(byField)
			}
		}
		if byLabel != "" {
			a.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: byLabel}
		}
	}
	return access.Request{Resource: a}
}

// selectedName returns the only name that a field selector selects; empty if there is no such name.
func selectedName(s string) string {
	parsed, err := fields.ParseSelector(s)
	if err != nil {
		return ""
	}
	name, _ := parsed.RequiresExactMatch("metadata.name")
	if len(content.IsPathSegmentName(name)) > 0 {
		return ""
	}
	return name
}

// mayContinue returns a function that authorizes a watch, which may be one that is forwarded, again; nil
// if everybody may watch.
func (s *Server) mayContinue(r *request, forwarded bool) func() error {
	if s.opts.Authorize == nil {
		return nil
	}
	ask := asked(r)
	ask.Continues, ask.Forwarded = true, forwarded
	return func() error { return s.opts.Authorize(r.Context(), ask) }
}
