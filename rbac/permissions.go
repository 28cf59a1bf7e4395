package rbac

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/upstream"
)

// Permissions are RBAC rules, by the scope they apply to.
type Permissions struct {
	Cluster    []rbacv1.PolicyRule
	Namespaced map[string][]rbacv1.PolicyRule // by namespace
}

// Of returns the permissions that an agent with cfg needs. The defaults of cfg must be set.
func Of(cfg *config.AgentConfiguration) Permissions {
	everywhere, in := kinds{}, map[string]kinds{}
	var definitions []string
	for _, r := range cfg.Resources {
		group := r.Resource.GroupResource()
		verbs := "list,watch"
		if r.LabelSelector == "" && r.FieldSelector == "" {
			verbs = "get,list,watch"
		}
		if upstream.MayBeCustom(group.Group) {
			definitions = append(definitions, group.String())
		}
		if len(r.Namespaces) == 0 {
			everywhere.add(group.Group, verbs, group.Resource)
		}
		for _, namespace := range r.Namespaces {
			if in[namespace] == nil {
				in[namespace] = kinds{}
			}
			in[namespace].add(group.Group, verbs, group.Resource)
		}
	}
	permissions := Permissions{Cluster: everywhere.rules(), Namespaced: map[string][]rbacv1.PolicyRule{}}
	for namespace, k := range in {
		permissions.Namespaced[namespace] = k.rules()
	}
	permissions.Cluster = append(permissions.Cluster, rbacv1.PolicyRule{
		Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"},
	})
	if len(definitions) > 0 {
		slices.Sort(definitions)
		permissions.Cluster = append(permissions.Cluster, rbacv1.PolicyRule{
			Verbs: []string{"get"}, APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: slices.Compact(definitions),
		})
	}
	if cfg.KubernetesAPI.Access.Enabled {
		permissions.addAccess(cfg.KubernetesAPI.Access)
	}
	if cfg.KubernetesAPI.Signer != "" {
		permissions.Cluster = append(permissions.Cluster, rbacv1.PolicyRule{
			Verbs: []string{"create", "delete", "get"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"},
		})
	}
	return permissions
}

// addAccess adds the permissions that are needed to let the cluster's users in.
func (r *Permissions) addAccess(a config.Access) {
	create := []string{"create"}
	r.Cluster = append(r.Cluster,
		rbacv1.PolicyRule{Verbs: create, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}},
		rbacv1.PolicyRule{Verbs: create, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}},
		rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/.well-known/openid-configuration", "/openid/v1/jwks"}})
	if a.ClientCAFile == "" {
		r.Namespaced["kube-system"] = append(r.Namespaced["kube-system"], rbacv1.PolicyRule{
			Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"extension-apiserver-authentication"},
		})
	}
}

// kinds are resources by group and verbs.
type kinds map[[2]string][]string

func (k kinds) add(group, verbs, resource string) {
	at := [2]string{group, verbs}
	k[at] = append(k[at], resource)
}

// rules returns a rule for each group and set of verbs, in order.
func (k kinds) rules() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, at := range slices.SortedFunc(maps.Keys(k), func(x, y [2]string) int { return slices.Compare(x[:], y[:]) }) {
		resources := slices.Sorted(slices.Values(k[at]))
		rules = append(rules, rbacv1.PolicyRule{
			Verbs: strings.Split(at[1], ","), APIGroups: []string{at[0]}, Resources: slices.Compact(resources),
		})
	}
	return rules
}

// Permission is a set of verbs on one resource.
type Permission struct {
	Verbs           []string
	Group, Resource string
	Name            string // of the only object that it covers; empty for any
	Namespace       string // empty for the whole cluster
}

// Each returns the permissions one by one, for each resource, object and namespace. Permissions for the
// whole cluster come first. As on the server, the permission on a Namespace object is in that
// namespace.
func (r Permissions) Each() []Permission {
	all := each(r.Cluster, "")
	for _, namespace := range slices.Sorted(maps.Keys(r.Namespaced)) {
		all = append(all, each(r.Namespaced[namespace], namespace)...)
	}
	return all
}

func each(rules []rbacv1.PolicyRule, namespace string) []Permission {
	var all []Permission
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					in := namespace
					if group == "" && resource == "namespaces" {
						in = name
					}
					all = append(all, Permission{Verbs: rule.Verbs, Group: group, Resource: resource, Name: name, Namespace: in})
				}
			}
		}
	}
	return all
}
