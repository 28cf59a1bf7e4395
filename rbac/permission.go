package rbac

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Permission is some verbs on one resource.
type Permission struct {
	Verbs           []string
	Group, Resource string
	Name            string // of the one object that it is about; empty for any
	Namespace       string // empty for all of the cluster
}

// Each returns the permissions by resource, object and namespace: those that count in all of the cluster
// first. A namespace is in itself, as it is for the server.
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
