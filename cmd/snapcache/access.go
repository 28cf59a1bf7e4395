package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/rbac"
	"github.com/snapcache/snapcache/upstream"
)

// missingRights returns the permissions that a configuration needs and the server does not grant,
// each with only the missing verbs.
func missingRights(ctx context.Context, cluster *upstream.Cluster, cfg *config.AgentConfiguration) ([]rbac.Permission, error) {
	var missing []rbac.Permission
	for _, right := range rbac.Of(cfg).Each() {
		lacks := right
		lacks.Verbs = nil
		for _, verb := range right.Verbs {
			allowed, err := cluster.Allowed(ctx, authorizationv1.ResourceAttributes{
				Verb: verb, Group: right.Group, Resource: right.Resource, Name: right.Name, Namespace: right.Namespace,
			})
			if err != nil {
				return nil, err
			}
			if !allowed {
				lacks.Verbs = append(lacks.Verbs, verb)
			}
		}
		if len(lacks.Verbs) > 0 {
			missing = append(missing, lacks)
		}
	}
	return missing, nil
}

// missingError returns an error with a line for each permission that the server does not grant; nil
// for none.
func missingError(server string, missing []rbac.Permission) error {
	if len(missing) == 0 {
		return nil
	}
	var errs []error
	for _, right := range missing {
		errs = append(errs, fmt.Errorf("%s does not grant %s", server, describeRight(right)))
	}
	return errors.Join(append(errs, errors.New("the configuration is valid, but rights are missing: snapcache config rbac prints the manifest that grants them"))...)
}

// describeRight describes a missing permission, and what the agent does without it.
func describeRight(right rbac.Permission) string {
	text := strings.Join(right.Verbs, ", ") + " on " + schema.GroupResource{Group: right.Group, Resource: right.Resource}.String()
	switch {
	case right.Name != "":
		text += " " + right.Name
	case right.Namespace != "":
		text += " in the namespace " + right.Namespace
	default:
		text += " in all of the cluster"
	}
	switch {
	case right.Resource == "namespaces" && right.Name != "":
		text += ": the cluster will be identified by its CA and address"
	case right.Name != "":
		text += ": a change of its schema will not be noticed"
	case slices.Equal(right.Verbs, []string{"get"}):
		text += ": objects that are corrupt or differ can't be fetched again"
	default:
		text += ": it can't be cached"
	}
	return text
}
