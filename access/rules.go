package access

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// Source returns the version of a cached collection, safe for concurrent use. It may change later
// than the collection's View, never earlier.
type Source func() Version

// Version identifies the content of a collection: each change of an object makes another one, and
// nothing else does. Unlike a resourceVersion, it does not move with bookmarks. The zero Version
// stands for a collection that is not complete.
type Version struct {
	Of      store.Collection
	Changes int64 // of the objects of Of
}

// rulesVersion has the versions of the collections of Rules; it is zero if one of them is not
// complete.
type rulesVersion [4]Version // of roles, then of bindings

// Rules evaluates cached RBAC objects. It is safe for concurrent use. A nil *Rules allows nothing.
type Rules struct {
	ClusterRoles, ClusterRoleBindings, Roles, RoleBindings Source

	mu    sync.Mutex
	built *ruleset
}

// version identifies the state of the objects; it is zero if one of the collections is not
// complete.
func (r *Rules) version() (all rulesVersion) {
	if r == nil {
		return rulesVersion{}
	}
	for i, version := range [...]Source{r.ClusterRoles, r.Roles, r.ClusterRoleBindings, r.RoleBindings} {
		if all[i] = version(); all[i] == (Version{}) {
			return rulesVersion{}
		}
	}
	return all
}

// allow reports whether the objects allow a request.
func (r *Rules) allow(spec authorizationv1.SubjectAccessReviewSpec) bool {
	s := r.current()
	return s != nil && s.allow(spec)
}

// current returns the objects as they are now; nil if one of the collections is not complete.
func (r *Rules) current() *ruleset {
	version := r.version()
	if version == (rulesVersion{}) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.built == nil || r.built.version != version {
		built, err := build(version)
		if err != nil {
			return nil
		}
		r.built = built
	}
	return r.built
}

// build reads the objects. A corrupt one allows nothing. They may be newer than the version, which
// is then read again at the next request.
func build(version rulesVersion) (*ruleset, error) {
	s := &ruleset{version: version, roles: map[string][]rbacv1.PolicyRule{}, grants: map[string][]grant{}}
	role := func(o *object.Object) error {
		var x rbacv1.ClusterRole // a Role has the same rules
		if err := o.Into(&x); err != nil {
			return err
		}
		s.roles[o.Key()] = x.Rules
		return nil
	}
	binding := func(o *object.Object) error {
		var x rbacv1.ClusterRoleBinding // a RoleBinding has the same fields
		if err := o.Into(&x); err != nil {
			return err
		}
		s.bind(o.GetNamespace(), x.RoleRef, x.Subjects)
		return nil
	}
	for i, add := range []func(*object.Object) error{role, role, binding, binding} {
		for o, err := range intact(version[i].Of) {
			if err == nil {
				err = add(o)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// intact returns the objects of a collection that are not corrupt.
func intact(c store.Collection) iter.Seq2[*object.Object, error] {
	return func(yield func(*object.Object, error) bool) {
		v, err := c.View()
		if err != nil {
			yield(nil, err)
			return
		}
		defer v.Close()
		for o, err := range v.Objects("", "") {
			if !errors.As(err, new(*store.CorruptionError)) && !yield(o, err) {
				return
			}
		}
	}
}

// ruleset is the RBAC objects of one moment, indexed for requests. It is immutable once it is built.
type ruleset struct {
	version rulesVersion
	roles   map[string][]rbacv1.PolicyRule // by key
	grants  map[string][]grant             // by subject
}

// grant gives the rules of a role to a subject: in one namespace, or everywhere.
type grant struct{ namespace, role string }

// bind adds the grants of a binding; namespace is empty for a ClusterRoleBinding.
func (s *ruleset) bind(namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	g := grant{namespace: namespace, role: ref.Name}
	if ref.Kind == "Role" {
		g.role = object.Key(namespace, ref.Name)
	}
	for _, x := range subjects {
		var name string
		switch {
		case x.Kind == rbacv1.UserKind:
			name = userSubject(x.Name)
		case x.Kind == rbacv1.GroupKind:
			name = groupSubject(x.Name)
		case x.Kind == rbacv1.ServiceAccountKind && x.Namespace == "" && namespace == "":
			continue // it is in no namespace
		case x.Kind == rbacv1.ServiceAccountKind && x.Namespace == "":
			name = userSubject("system:serviceaccount:" + namespace + ":" + x.Name)
		case x.Kind == rbacv1.ServiceAccountKind:
			name = userSubject("system:serviceaccount:" + x.Namespace + ":" + x.Name)
		default:
			continue
		}
		s.grants[name] = append(s.grants[name], g)
	}
}

func userSubject(name string) string  { return "user " + name }
func groupSubject(name string) string { return "group " + name }

func (s *ruleset) allow(spec authorizationv1.SubjectAccessReviewSpec) bool {
	if s.allowSubject(userSubject(spec.User), spec) {
		return true
	}
	return slices.ContainsFunc(spec.Groups, func(group string) bool { return s.allowSubject(groupSubject(group), spec) })
}

func (s *ruleset) allowSubject(subject string, spec authorizationv1.SubjectAccessReviewSpec) bool {
	return slices.ContainsFunc(s.grants[subject], func(g grant) bool {
		if g.namespace != "" && (spec.ResourceAttributes == nil || spec.ResourceAttributes.Namespace != g.namespace) {
			return false
		}
		return slices.ContainsFunc(s.roles[g.role], func(r rbacv1.PolicyRule) bool { return allows(&r, spec) })
	})
}

// allows reports whether a rule allows a request, see "Using RBAC Authorization" in the Kubernetes
// documentation.
func allows(rule *rbacv1.PolicyRule, spec authorizationv1.SubjectAccessReviewSpec) bool {
	if n := spec.NonResourceAttributes; n != nil {
		return has(rule.Verbs, n.Verb) && slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
			prefix, wild := strings.CutSuffix(url, "*")
			return url == n.Path || wild && strings.HasPrefix(n.Path, prefix)
		})
	}
	a := spec.ResourceAttributes
	resource := has(rule.Resources, a.Resource)
	if a.Subresource != "" {
		resource = slices.Contains(rule.Resources, rbacv1.ResourceAll) || slices.Contains(rule.Resources, a.Resource+"/"+a.Subresource) ||
			slices.Contains(rule.Resources, "*/"+a.Subresource)
	}
	return resource && has(rule.Verbs, a.Verb) && has(rule.APIGroups, a.Group) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.Name))
}

// has reports whether a list has a value, or the star that stands for all.
func has(list []string, value string) bool {
	return slices.Contains(list, value) || slices.Contains(list, "*")
}
