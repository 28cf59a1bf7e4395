package rbac

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Permission is a set of verbs on one resource.
type Permission struct {
	Verbs           []string
	Group, Resource string
	Name            string // of the only object that it covers; empty for any
	Namespace       string // empty for the whole cluster
}

// Each returns the permissions one by one, for each resource, object and namespace; those for the
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
