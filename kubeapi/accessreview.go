package kubeapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/kubeapi/internal/selector"
	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// reviewAccess answers a SelfSubjectAccessReview with the decision that the request itself would get.
func (s *Server) reviewAccess(r *request, body *reviewBody) (runtime.Object, error) {
	review := &authorizationv1.SelfSubjectAccessReview{}
	if err := body.decode(review, authorizationv1.SchemeGroupVersion.WithKind(accessReview)); err != nil {
		return nil, err
	}
	if errs := validateAccessReview(review); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
	}
	ask := access.Request{Resource: review.Spec.ResourceAttributes, NonResource: review.Spec.NonResourceAttributes}
	review.Status = authorizationv1.SubjectAccessReviewStatus{}
	if s.isLocal(r) {
		reason := s.refusal(r, ask)
		review.Status.Allowed, review.Status.Reason = reason == "", reason
		return review, nil
	}
	of, err := s.catalog.cachedFor(ask.Resource)
	if err != nil {
		return nil, err
	}
	if len(of) > 0 {
		ask.Resource = of[0].asRequested(*ask.Resource)
	}
	review.Status, err = s.opts.Review(r.Context(), ask)
	return review, err
}

// validateAccessReview returns the errors of a kube-apiserver.
func validateAccessReview(review *authorizationv1.SelfSubjectAccessReview) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), review.Spec
	switch {
	case spec.ResourceAttributes != nil && spec.NonResourceAttributes != nil:
		type internal struct{ Path, Verb string } // as a kube-apiserver's errors show it
		errs = append(errs, field.Invalid(at.Child("nonResourceAttributes"), internal(*spec.NonResourceAttributes),
			"cannot be specified in combination with resourceAttributes"))
	case spec.ResourceAttributes == nil && spec.NonResourceAttributes == nil:
		errs = append(errs, field.Invalid(at.Child("resourceAttributes"), spec.NonResourceAttributes,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if a := spec.ResourceAttributes; a != nil {
		errs = append(errs, validateSelectors(a, at.Child("resourceAttributes"))...)
	}
	meta := review.ObjectMeta
	meta.ManagedFields = nil
	if !equality.Semantic.DeepEqual(metav1.ObjectMeta{}, meta) {
		errs = append(errs, field.Invalid(field.NewPath("metadata"), review.ObjectMeta, "must be empty"))
	}
	return errs
}

// anyField and anyLabel accept operators of newer servers, as a kube-apiserver does.
var (
	anyField = validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
	anyLabel = validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
)

// validateSelectors returns the errors of the selectors of a review.
func validateSelectors(a *authorizationv1.ResourceAttributes, at *field.Path) (errs field.ErrorList) {
	check := func(at *field.Path, raw string, requirements int) {
		switch {
		case raw != "" && requirements > 0:
			errs = append(errs, field.Invalid(at.Child("rawSelector"), raw, "may not specified at the same time as requirements"))
		case raw == "" && requirements == 0:
			errs = append(errs, field.Required(at.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at)))
		}
	}
	if f := a.FieldSelector; f != nil {
		at := at.Child("fieldSelector")
		check(at, f.RawSelector, len(f.Requirements))
		for i, x := range f.Requirements {
			errs = append(errs, validation.ValidateFieldSelectorRequirement(x, anyField, at.Child("requirements").Index(i))...)
		}
	}
	if l := a.LabelSelector; l != nil {
		at := at.Child("labelSelector")
		check(at, l.RawSelector, len(l.Requirements))
		for i, x := range l.Requirements {
			errs = append(errs, validation.ValidateLabelSelectorRequirement(x, anyLabel, at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

// isLocal reports whether this machine has let in the caller of a request, so that no cluster is asked for its
// rights.
func (s *Server) isLocal(r *request) bool {
	c := access.CallerOf(r.Context())
	return s.opts.Review == nil || c != nil && c.Local
}

// cachedFor returns the collections of the resource that is asked about, ordered by ID: those of the first
// version that fits.
func (c *catalog) cachedFor(a *authorizationv1.ResourceAttributes) (found []*served, err error) {
	if a == nil {
		return nil, nil
	}
	all, err := c.all()
	for _, x := range all {
		i := x.info
		if i.Group == a.Group && i.Resource == a.Resource && (isAny(a.Version) || i.Version == a.Version) &&
			(len(found) == 0 || found[0].info.Version == i.Version) {
			found = append(found, x)
		}
	}
	return found, err
}

// isAny reports whether a version in a review stands for all.
func isAny(version string) bool { return version == "" || version == "*" }

// asRequested returns the attributes that a request for the collection would have: in the version that is
// served, and in no namespace if the resource is in none.
func (s *served) asRequested(a authorizationv1.ResourceAttributes) *authorizationv1.ResourceAttributes {
	a.Version = s.info.Version
	switch {
	case s.info.Namespaced:
	case s.info.Group == "" && s.info.Resource == "namespaces":
		a.Namespace = a.Name
	default:
		a.Namespace = ""
	}
	return &a
}

const (
	onlyReads     = "here, without a user of the cluster, only get, list and watch are possible"
	notServedHere = "it is not served here"
)

// refusal returns why a local caller may not make a request; empty if it may, as it may read what is cached.
func (s *Server) refusal(r *request, ask access.Request) string {
	get := &http.Request{Method: http.MethodGet, URL: &url.URL{}, Header: http.Header{}}
	get = get.WithContext(r.Context())
	if n := ask.NonResource; n != nil {
		get.URL.Path = n.Path
		return s.refusalOfPath(newRequest(get), n.Verb)
	}
	a := ask.Resource
	of, err := s.catalog.cachedFor(a)
	switch {
	case err != nil:
		return err.Error()
	case !slices.Contains([]verb{verbGet, verbList, verbWatch}, verb(a.Verb)):
		return onlyReads
	case len(of) == 0:
		return fmt.Sprintf("%s is not cached here", schema.GroupResource{Group: a.Group, Resource: a.Resource})
	case a.Subresource != "" && verb(a.Verb) != verbGet:
		return notServedHere
	}
	q := &request{Request: get, kind: forResource, named: true, verb: verb(a.Verb), query: url.Values{}}
	if q.query, err = selectorsOf(a); err != nil {
		return err.Error()
	}
	q.path = path{GroupVersionResource: of[0].info.GVR(), namespace: a.Namespace, name: a.Name, subresource: a.Subresource}
	if !of[0].info.Namespaced {
		q.path.namespace = ""
	}
	q.path.watch = q.verb != verbGet && a.Name != "" // then the name selects one of the list
	return reasonOf(q.within(of).err)
}

// refusalOfPath is refusal for a path that is no resource's.
func (s *Server) refusalOfPath(q *request, verb string) string {
	if verb != "get" {
		return onlyReads
	}
	switch s.route(q).by {
	case byHealth, byMetrics, byVersion, byOpenAPI:
		return ""
	case byDiscovery:
		if d, err := s.catalog.documents(s.unknown().versions()); err == nil && d.Has(q.URL.Path) {
			return ""
		}
	}
	return notServedHere
}

// reasonOf returns an error as a reason; empty for nil.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return status.Of(err).Message
}

// selectorsOf returns the query of a request with the selectors of a review.
func selectorsOf(a *authorizationv1.ResourceAttributes) (url.Values, error) {
	q := url.Values{}
	if a.FieldSelector != nil {
		q.Set("fieldSelector", a.FieldSelector.RawSelector)
	}
	if a.LabelSelector != nil {
		q.Set("labelSelector", a.LabelSelector.RawSelector)
	}
	return q, selector.TooLong(q.Get("labelSelector"), q.Get("fieldSelector"))
}
