package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
)

// Package discovery of client-go would add 27 MB to the program: it imports all API types.

const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// resources returns what the server serves, the preferred version of each group first.
func (c *client) resources(ctx context.Context) (all []*resource, err error) {
	for _, path := range []string{"/api", "/apis"} {
		var groups apidiscovery.APIGroupDiscoveryList
		raw, err := do(ctx, c.rest.Get().AbsPath(path).SetHeader("Accept", acceptDiscovery))
		if err == nil {
			err = json.Unmarshal(raw, &groups)
		}
		if err != nil {
			return nil, err
		}
		for _, g := range groups.Items {
			for _, v := range g.Versions {
				all = append(all, inVersion(g.Name, v)...)
			}
		}
	}
	return all, nil
}

func inVersion(group string, v apidiscovery.APIVersionDiscovery) (all []*resource) {
	for _, r := range v.Resources {
		if r.ResponseKind == nil {
			continue
		}
		all = append(all, &resource{
			group: group, version: v.Version, name: r.Resource, kind: r.ResponseKind.Kind,
			singular:   cmp.Or(r.SingularResource, strings.ToLower(r.ResponseKind.Kind)),
			shortNames: r.ShortNames, categories: r.Categories, namespaced: r.Scope == apidiscovery.ScopeNamespace,
		})
	}
	return all
}
