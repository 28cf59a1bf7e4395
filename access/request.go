package access

import (
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Request is a caller's request: for a resource, or for a path that is none.
type Request struct {
	Resource    *authorizationv1.ResourceAttributes
	NonResource *authorizationv1.NonResourceAttributes

	// Continues is set for a watch that has been authorized before, and is authorized again each
	// [RecheckInterval] while it lasts. It ends within a minute after its right was withdrawn.
	Continues bool

	// Forwarded is set for a request that the cluster's server itself has let in: only its own refusal
	// counts.
	Forwarded bool
}

// RecheckInterval is the time between two authorizations of a watch.
const RecheckInterval = 10 * time.Second

// IsHealth reports whether a path is of a health check, which everybody may request, without credentials.
func IsHealth(path string) bool { return path == "/healthz" || path == "/livez" || path == "/readyz" }

// spec returns the review of a request.
func (r Request) spec(c *Caller) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: c.User.Username, UID: c.User.UID, Groups: c.User.Groups,
		ResourceAttributes: r.Resource, NonResourceAttributes: r.NonResource,
	}
	for name, values := range c.User.Extra {
		if name == credentialID {
			continue
		}
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	return spec
}

// all returns the list of all objects of a resource for the list of one object by its name. Who may do the
// former may do the latter: an agent that follows a hub asks for several objects before each resume, and
// the cluster's server is asked about one right in place of one for each of them.
func (r Request) all() (Request, bool) {
	a := r.Resource
	if a == nil || a.Verb != "list" || a.Name == "" || r.Forwarded {
		return Request{}, false
	}
	return Request{
		Resource:  &authorizationv1.ResourceAttributes{Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource},
		Continues: r.Continues,
	}, true
}

// forbidden returns the error of a refused request, in the words of a kube-apiserver.
func (r Request) forbidden(user, reason string) error {
	if n := r.NonResource; n != nil {
		return apierrors.NewForbidden(schema.GroupResource{}, "", because(fmt.Sprintf("User %q cannot %s path %q", user, n.Verb, n.Path), reason))
	}
	a := r.Resource
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	place := "at the cluster scope"
	if a.Namespace != "" {
		place = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	text := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", user, a.Verb, resource, a.Group, place)
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, because(text, reason))
}

func because(text, reason string) error {
	if reason != "" {
		text += ": " + reason
	}
	return errors.New(text)
}
