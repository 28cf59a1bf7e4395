package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type resource struct {
	schema.GroupVersionResource
	kind, singular         string
	shortNames, categories []string
	namespaced             bool
}

// sameIn reports whether x is the same resource, perhaps in another version.
func (r *resource) sameIn(x *resource) bool { return r.GroupResource() == x.GroupResource() }

func (r *resource) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.kind}
}

func (r *resource) apiVersion() string { return r.GroupVersion().String() }

// root is the path of the resource's group and version.
func (r *resource) root() string {
	if r.Group == "" {
		return "/api/" + r.Version
	}
	return "/apis/" + r.Group + "/" + r.Version
}

// resources are all that a server serves. The first match of a name counts: the groups are in the
// server's order, and a group's preferred version is its first.
type resources struct {
	all  []*resource
	warn func(text string)
}

// find returns the resource that an argument names: pods, pod, po, Pod, pods.v1.,
// deployments.apps, deployments.v1.apps.
func (rs resources) find(arg string) (*resource, error) {
	gvr, gr := schema.ParseResourceArg(arg)
	if gvr != nil {
		if r := rs.named(gvr.Resource, gvr.Group, gvr.Version); r != nil {
			return r, nil
		}
	}
	if r := rs.named(gr.Resource, gr.Group, ""); r != nil {
		return r, nil
	}
	gvk, gk := schema.ParseKindArg(arg)
	for _, r := range rs.all {
		if gvk != nil && r.kind == gvk.Kind && r.Group == gvk.Group && r.Version == gvk.Version || r.groupKind() == gk {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%s is not cached: %s", gr, rs.names())
}

// names returns the names of all resources in words.
func (rs resources) names() string {
	var names []string
	for _, r := range rs.all {
		if name := r.GroupResource().String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "nothing is"
	}
	return "there is " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// named finds a plural, a singular or a short name. An empty group or version is any. A group may be
// the beginning of its name.
func (rs resources) named(name, group, version string) *resource {
	lower := strings.ToLower(name)
	for _, inGroup := range []func(string) bool{
		func(g string) bool { return group == "" || g == group },
		func(g string) bool { return strings.HasPrefix(g, group) },
	} {
		var found *resource
		for _, r := range rs.all {
			if inGroup(r.Group) && (version == "" || r.Version == version) && (r.Resource == lower || r.singular == lower) {
				return r
			}
		}
		for _, r := range rs.all {
			switch {
			case !inGroup(r.Group) || version != "" && r.Version != version || !slices.Contains(r.shortNames, name):
			case found == nil:
				found = r
			case !found.sameIn(r):
				rs.warn(fmt.Sprintf("short name %q could also match lower priority resource %s", name, r.GroupResource()))
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// inCategory returns the resources of a category such as "all", in their preferred versions.
func (rs resources) inCategory(category string) []*resource {
	var found []*resource
	for _, r := range rs.all {
		if slices.Contains(r.categories, category) && !slices.ContainsFunc(found, r.sameIn) {
			found = append(found, r)
		}
	}
	return found
}

// Package discovery of client-go would add 27 MB to the program: it imports all API types.

const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// resources returns the server's resources that can be listed, the preferred version of each group first.
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
		if r.ResponseKind == nil || !slices.Contains(r.Verbs, "list") { // such as reviews
			continue
		}
		all = append(all, &resource{
			GroupVersionResource: schema.GroupVersionResource{Group: group, Version: v.Version, Resource: r.Resource},
			kind:                 r.ResponseKind.Kind, singular: cmp.Or(r.SingularResource, strings.ToLower(r.ResponseKind.Kind)),
			shortNames: r.ShortNames, categories: r.Categories, namespaced: r.Scope == apidiscovery.ScopeNamespace,
		})
	}
	return all
}
