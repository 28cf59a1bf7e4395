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

// Definition is how the server serves a resource now.
type Definition struct {
	Resource
	store.Description

	// Schema is the result of [Cluster.Schema].
	Schema string

	// Unread is the server's refusal to let this user read the CustomResourceDefinition, nil for none.
	// Columns, SelectableFields, ListKind and Schema are then not known.
	Unread error
}

// Definition returns how the server serves a resource now: from its CustomResourceDefinition, or from
// the discovery document of its version if it has none, or the server does not allow this user to read
// it. In that case a resource of a group that is not Kubernetes' own counts as a custom one.
//
// If the server does not serve the resource in its version, the error is a [*NoResourceError]. The
// result may have a Schema all the same.
func (c *Cluster) Definition(ctx context.Context, r Resource) (Definition, error) {
	d := Definition{Resource: Resource{GVR: r.GVR}}
	found, err := c.crd(ctx, r)
	switch {
	case found != nil:
		d.Schema, err = found.digest(r.GVR.Version)
		if err == nil && !found.define(&d) {
			err = notServed(r.GVR)
		}
		return d, err
	case IsForbidden(err, definitions):
		d.Unread = err
	case err != nil:
		return d, err
	}
	list, err := c.published(ctx, r.GVR.GroupVersion())
	if err != nil {
		return d, fmt.Errorf("describe %s: %w", r.GVR.GroupResource(), err)
	}
	if !define(list, &d) {
		return d, notServed(r.GVR)
	}
	d.Custom = d.Unread != nil
	return d, nil
}

// Definition is [Cluster.Definition] of the source's resource.
func (s *Source) Definition(ctx context.Context) (Definition, error) {
	return s.cluster.Definition(ctx, s.opts.Resource)
}

func notServed(r schema.GroupVersionResource) error {
	return &NoResourceError{fmt.Sprintf("the server has no resource %q in %s", r.Resource, r.GroupVersion())}
}

// DescribeOffline returns the description of a resource, from the resources of its version in the
// discovery document and the definition as JSON, which is nil if there is none.
func DescribeOffline(list []metav1.APIResource, definition []byte, r schema.GroupVersionResource) (store.Description, error) {
	d := Definition{Resource: Resource{GVR: r}}
	define(list, &d)
	if definition == nil {
		return d.Description, nil
	}
	var parsed crd
	if err := json.Unmarshal(definition, &parsed); err != nil {
		return d.Description, fmt.Errorf("definition of %s: %w", r.GroupResource(), err)
	}
	parsed.describe(&d)
	return d.Description, nil
}

// define reads the discovery document of a resource's version into d. It returns false if the resource
// is not there.
func define(list []metav1.APIResource, d *Definition) (ok bool) {
	for _, r := range list {
		parent, sub, isSub := strings.Cut(r.Name, "/")
		switch {
		case parent != d.GVR.Resource:
		case !isSub:
			d.Kind, d.Namespaced, ok = r.Kind, r.Namespaced, true
			d.Singular, d.ShortNames, d.Categories = r.SingularName, r.ShortNames, r.Categories
		case slices.Contains(wholeObject, sub) && slices.Contains(r.Verbs, "get"):
			d.Subresources = append(d.Subresources, sub)
		}
	}
	return ok
}

// define reads the definition into d. It returns false if the resource is not served in d's version.
func (c *crd) define(d *Definition) bool {
	v, ok := c.describe(d)
	names := c.Status.Names
	if !ok || !v.Served || names.Kind == "" {
		return false
	}
	d.Kind, d.Namespaced = names.Kind, c.Spec.Scope == "Namespaced"
	d.Singular, d.ShortNames, d.Categories = names.Singular, names.ShortNames, names.Categories
	if v.Subresources.Status != nil {
		d.Subresources = []string{"status"}
	}
	return true
}

// describe adds the parts to d that no discovery document has, and returns d's version.
func (c *crd) describe(d *Definition) (v crdVersion, ok bool) {
	d.Custom = true
	if names := c.Status.Names; names.ListKind != names.Kind+"List" {
		d.ListKind = names.ListKind
	}
	for _, v := range c.Spec.Versions {
		if v.Name != d.GVR.Version {
			continue
		}
		d.Columns = v.Columns
		for _, f := range v.SelectableFields {
			d.SelectableFields = append(d.SelectableFields, f.JSONPath)
		}
		return v, true
	}
	return v, false
}
