package kubectl

import (
	"cmp"
	"context"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Package discovery of client-go would add 27 MB to the program: it imports all API types.

const acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// document is the answer to /api or /apis: an APIGroupDiscoveryList, or else an APIVersions or an
// APIGroupList.
type document struct {
	Kind     string                           `json:"kind"`
	Items    []apidiscovery.APIGroupDiscovery `json:"items"`
	Versions []string                         `json:"versions"`
	Groups   []metav1.APIGroup                `json:"groups"`
}

// resources returns what the server serves.
func (c *client) resources(ctx context.Context) (all []*resource, err error) {
	for _, path := range []string{"/api", "/apis"} {
		var d document
		err := c.discover(ctx, &d, acceptAggregated, path)
		if apierrors.IsNotFound(err) {
			continue // a server may have only one of them
		}
		if err != nil {
			return nil, err
		}
		if d.Kind == "APIGroupDiscoveryList" {
			all = append(all, aggregated(d.Items)...)
			continue
		}
		for _, gv := range d.groupVersions() {
			// One unavailable group does not hide the others.
			all = append(all, c.inGroupVersion(ctx, gv)...)
		}
	}
	return all, nil
}

func aggregated(groups []apidiscovery.APIGroupDiscovery) (all []*resource) {
	for _, g := range groups {
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				if r.ResponseKind == nil {
					continue
				}
				all = append(all, &resource{
					group: g.Name, version: v.Version, name: r.Resource, kind: r.ResponseKind.Kind,
					singular:   cmp.Or(r.SingularResource, strings.ToLower(r.ResponseKind.Kind)),
					shortNames: r.ShortNames, categories: r.Categories, namespaced: r.Scope == apidiscovery.ScopeNamespace,
				})
			}
		}
	}
	return all
}

// groupVersions returns the versions of the groups, the preferred one of each group first.
func (d document) groupVersions() (all []schema.GroupVersion) {
	for _, v := range d.Versions {
		all = append(all, schema.GroupVersion{Version: v})
	}
	for _, g := range d.Groups {
		all = append(all, schema.GroupVersion{Group: g.Name, Version: g.PreferredVersion.Version})
		for _, v := range g.Versions {
			if v != g.PreferredVersion {
				all = append(all, schema.GroupVersion{Group: g.Name, Version: v.Version})
			}
		}
	}
	return all
}

// inGroupVersion reads a legacy document, empty if it can't be read.
func (c *client) inGroupVersion(ctx context.Context, gv schema.GroupVersion) (all []*resource) {
	var list metav1.APIResourceList
	if err := c.discover(ctx, &list, acceptJSON, (&resource{group: gv.Group, version: gv.Version}).root()); err != nil {
		return nil
	}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") { // not a subresource
			all = append(all, &resource{
				group: gv.Group, version: gv.Version, name: r.Name, kind: r.Kind, singular: cmp.Or(r.SingularName, strings.ToLower(r.Kind)),
				shortNames: r.ShortNames, categories: r.Categories, namespaced: r.Namespaced,
			})
		}
	}
	return all
}
