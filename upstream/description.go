package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/store"
)

// wholeObject are the subresources whose GET returns the object itself.
var wholeObject = []string{"ephemeralcontainers", "resize", "status"}

var definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// Describe returns what the server publishes about a resource: its other names and subresources from
// the discovery document of its version, and the columns and selectable fields of that version from
// its CustomResourceDefinition.
//
// If the server does not allow this user to read definitions, a resource of a group that is not
// Kubernetes' own counts as a custom one, without columns and fields. If the server does not have the
// resource, the error is a [*NoResourceError].
func (c *Cluster) Describe(ctx context.Context, r Resource) (store.Description, error) {
	name := r.GVR.GroupResource()
	list, err := c.published(ctx, r.GVR.GroupVersion())
	if err != nil {
		return store.Description{}, fmt.Errorf("describe %s: %w", name, err)
	}
	d, ok := describe(list, r.GVR.Resource)
	if !ok {
		return store.Description{}, &NoResourceError{fmt.Sprintf("the server has no resource %q in %s", r.GVR.Resource, r.GVR.GroupVersion())}
	}
	definition, err := c.definition(ctx, r)
	switch {
	case IsForbidden(err, definitions):
		d.Custom = true
	case err != nil:
		return store.Description{}, fmt.Errorf("describe %s: %w", name, err)
	case definition != nil:
		definition.describe(r.GVR.Version, &d)
	}
	return d, nil
}

// DescribeOffline returns what [Cluster.Describe] does, from the resources of the version in the discovery
// document and the definition as JSON, which is nil if there is none.
func DescribeOffline(list []metav1.APIResource, crd []byte, r schema.GroupVersionResource) (store.Description, error) {
	d, _ := describe(list, r.Resource)
	if crd == nil {
		return d, nil
	}
	var parsed definition
	if err := json.Unmarshal(crd, &parsed); err != nil {
		return d, fmt.Errorf("definition of %s: %w", r.GroupResource(), err)
	}
	parsed.describe(r.Version, &d)
	return d, nil
}

// describe returns the part of a resource's description that is in the discovery document of its
// version, and whether the resource is there.
func describe(list []metav1.APIResource, resource string) (d store.Description, ok bool) {
	for _, r := range list {
		parent, sub, isSub := strings.Cut(r.Name, "/")
		switch {
		case parent != resource:
		case !isSub:
			d.Singular, d.ShortNames, d.Categories, ok = r.SingularName, r.ShortNames, r.Categories, true
		case slices.Contains(wholeObject, sub) && slices.Contains(r.Verbs, "get"):
			d.Subresources = append(d.Subresources, sub)
		}
	}
	return d, ok
}

// describe adds to a description that the resource is a custom one, and the columns and the selectable
// fields of a version.
func (d *definition) describe(version string, to *store.Description) {
	to.Custom = true
	for _, v := range d.Spec.Versions {
		if v.Name != version {
			continue
		}
		to.Columns = v.Columns
		for _, f := range v.SelectableFields {
			to.SelectableFields = append(to.SelectableFields, f.JSONPath)
		}
	}
}
