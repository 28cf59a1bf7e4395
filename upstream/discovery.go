package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a resource as the server serves it.
type Resource struct {
	GVR  schema.GroupVersionResource
	Kind string

	// Namespaced reports whether its objects live in namespaces.
	Namespaced bool
}

// APIVersion returns group and version as objects carry it, such as "apps/v1".
func (r Resource) APIVersion() string { return r.GVR.GroupVersion().String() }

const maxSuggestions = 3

// UnreadError means that the server has a version of a group, and that its resources can't be read at the
// moment, for example because an aggregated server is away.
type UnreadError struct {
	GV  schema.GroupVersion
	err error
}

func (e *UnreadError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *UnreadError) Unwrap() error { return e.err }

// Resolve looks up a resource by its plural name. An empty group is the core group. An empty
// version selects the server's preferred version among those that have the resource.
//
// If the server does not have the resource, or offers no list or watch of it, the error is a
// [*NoResourceError].
func (c *Cluster) Resolve(ctx context.Context, resource, version, group string) (Resource, error) {
	versions := []string{version}
	if version == "" {
		var err error
		if versions, err = c.versions(ctx, group); err != nil {
			return Resource{}, fmt.Errorf("look up %s: %w", schema.GroupResource{Group: group, Resource: resource}, err)
		}
	}
	for _, v := range versions {
		gv := schema.GroupVersion{Group: group, Version: v}
		list, err := c.resources(ctx, gv)
		if err != nil {
			return Resource{}, &UnreadError{gv, fmt.Errorf("look up %s in %s: %w", resource, gv, err)}
		}
		for _, r := range list {
			if r.Name == resource {
				return checked(gv, r)
			}
		}
	}
	place := "the core group"
	if group != "" {
		place = "group " + group
	}
	if version != "" {
		place = "version " + version + " of " + place
	}
	text := fmt.Sprintf("the server has no resource %q in %s", resource, place)
	if found := c.suggest(ctx, schema.GroupResource{Group: group, Resource: resource}); len(found) > 0 {
		text += ": did you mean " + strings.Join(found, " or ") + "?"
	}
	return Resource{}, &NoResourceError{text}
}

func checked(gv schema.GroupVersion, r metav1.APIResource) (Resource, error) {
	for _, verb := range []string{"list", "watch"} {
		if !slices.Contains(r.Verbs, verb) {
			return Resource{}, &NoResourceError{fmt.Sprintf("resource %q in %s can't be cached: the server offers no %s of it", r.Name, gv, verb)}
		}
	}
	return Resource{GVR: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced}, nil
}

// versions returns the versions of a group, the preferred one first, or none if the server does not
// have the group.
func (c *Cluster) versions(ctx context.Context, group string) ([]string, error) {
	if group == "" {
		return []string{"v1"}, nil // the only version of the core group
	}
	var g metav1.APIGroup
	err := c.discover(ctx, &g, "apis", group)
	return groupVersions(g), err
}

func groupVersions(g metav1.APIGroup) []string {
	var versions []string
	for _, v := range append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, g.Versions...) {
		if v.Version != "" && !slices.Contains(versions, v.Version) {
			versions = append(versions, v.Version)
		}
	}
	return versions
}

// resources returns the resources in a version of a group, without subresources, or none if the
// server does not have the version.
func (c *Cluster) resources(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	list, err := c.published(ctx, gv)
	return slices.DeleteFunc(list, func(r metav1.APIResource) bool { return strings.Contains(r.Name, "/") }), err
}

// published returns the resources and subresources in a version of a group, or none if the server
// does not have the version.
func (c *Cluster) published(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	var list metav1.APIResourceList
	err := c.discover(ctx, &list, apiPath(gv)...)
	return list.APIResources, err
}

// suggest returns resources that name may stand for. A missing resource is looked up repeatedly,
// and the search takes a request for each group, so suggest caches the result for the life of the
// Cluster.
func (c *Cluster) suggest(ctx context.Context, gr schema.GroupResource) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.suggested[gr]
	if !ok {
		found = c.search(ctx, gr)
		c.suggested[gr] = found
	}
	return found
}

// search searches the resources of all groups. It is best effort: groups that can't be read are
// left out.
func (c *Cluster) search(ctx context.Context, gr schema.GroupResource) []string {
	var groups metav1.APIGroupList
	_ = c.discover(ctx, &groups, "apis")
	core := metav1.APIGroup{PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1"}}
	var found [3][]string // exact plurals first, then other names, in the requested group first
	for _, g := range append([]metav1.APIGroup{core}, groups.Groups...) {
		versions := groupVersions(g)
		if g.Name != gr.Group {
			versions = versions[:min(1, len(versions))]
		}
		for i, v := range versions {
			list, _ := c.resources(ctx, schema.GroupVersion{Group: g.Name, Version: v})
			for _, r := range list {
				rank := 2
				switch {
				case r.Name == gr.Resource:
					rank = 0
				case i > 0 || !alsoCalled(r, gr.Resource):
					continue
				case g.Name == gr.Group:
					rank = 1
				}
				name := r.Name
				if i > 0 { // not the preferred version
					name += "." + v
				}
				found[rank] = append(found[rank], schema.GroupResource{Group: g.Name, Resource: name}.String())
			}
		}
	}
	all := slices.Concat(found[:]...)
	return all[:min(len(all), maxSuggestions)]
}

// alsoCalled reports whether name is another name of r: its plural in other case, its singular,
// kind or a short name.
func alsoCalled(r metav1.APIResource, name string) bool {
	names := append([]string{r.Name, r.SingularName, r.Kind}, r.ShortNames...)
	return slices.ContainsFunc(names, func(n string) bool { return n != "" && strings.EqualFold(n, name) })
}

// discover decodes a discovery document. If the server has no such document, into is unchanged. Any
// other document is an error: a login page may answer {}, which lacks the kind.
func (c *Cluster) discover(ctx context.Context, into runtime.Object, path ...string) error {
	body, err := c.get(ctx, runtime.ContentTypeJSON, path...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil || into.GetObjectKind().GroupVersionKind().Kind == "" {
		return errors.New("the answer is not a discovery document: " + hintNotKubernetes)
	}
	return nil
}

func apiPath(gv schema.GroupVersion) []string {
	if gv.Group == "" {
		return []string{"api", gv.Version}
	}
	return []string{"apis", gv.Group, gv.Version}
}

// acceptGroups asks for an aggregated discovery document: v2beta1 is that of Kubernetes before 1.30.
const acceptGroups = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"

// DiscoveryDocument returns the aggregated discovery document at a path, "/api" or "/apis", as it was sent.
func (c *Cluster) DiscoveryDocument(ctx context.Context, path string) ([]byte, error) {
	return c.get(ctx, acceptGroups, path)
}
