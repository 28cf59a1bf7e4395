package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/snapcache/snapcache/store"
)

// crd is the part of a CustomResourceDefinition that determines how its objects are served, with their
// names and columns.
type crd struct {
	Metadata struct {
		UID string `json:"uid"`
	} `json:"metadata"`
	Spec struct {
		Conversion            map[string]any `json:"conversion"`
		PreserveUnknownFields bool           `json:"preserveUnknownFields"`
		Versions              []crdVersion   `json:"versions"`
		Scope                 string         `json:"scope,omitempty"`
	} `json:"spec"`
	Status struct {
		// Names are the names that the server serves. The spec's may be in use elsewhere.
		Names struct {
			Kind       string   `json:"kind"`
			ListKind   string   `json:"listKind"`
			Singular   string   `json:"singular"`
			ShortNames []string `json:"shortNames"`
			Categories []string `json:"categories"`
		} `json:"acceptedNames"`
	} `json:"status,omitzero"`
}

type crdVersion struct {
	Name    string `json:"name"`
	Served  bool   `json:"served"`
	Storage bool   `json:"storage"`
	Schema  any    `json:"schema"`

	Columns          []store.Column `json:"additionalPrinterColumns,omitempty"`
	SelectableFields []struct {
		JSONPath string `json:"jsonPath"`
	} `json:"selectableFields,omitempty"`
	Subresources struct {
		Status *struct{} `json:"status"`
	} `json:"subresources,omitzero"`
}

// builtin are the groups with a dot that Kubernetes itself serves. They have no definitions. Skipping
// them avoids a 403, and a hint to grant a permission that would not help.
var builtin = sets.New(
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
	"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
	"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
	"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
)

// MayBeCustom reports whether the resources of a group may be custom ones, whose definitions
// [Cluster.Schema] reads.
func MayBeCustom(group string) bool { return strings.Contains(group, ".") && !builtin.Has(group) }

// Schema returns a digest of the part of a custom resource's definition that determines the form of
// its objects in the version of r. When that part changes, unchanged objects are served in another
// form under the same resourceVersions.
//
// The digest is empty if the resource has no definition, or none at the moment.
func (c *Cluster) Schema(ctx context.Context, r Resource) (string, error) {
	d, err := c.crd(ctx, r)
	if err != nil || d == nil {
		return "", err
	}
	return d.digest(r.GVR.Version)
}

// digest returns the digest of the form of the objects in a version. It does not cover names and scope,
// which [Definition] has.
func (d crd) digest(version string) (string, error) {
	d.Spec.Versions = slices.Clone(d.Spec.Versions)
	for i, v := range d.Spec.Versions {
		form := crdVersion{Name: v.Name, Served: v.Served, Storage: v.Storage}
		if v.Name == version {
			form.Schema = v.Schema
		}
		d.Spec.Versions[i] = form
	}
	d.Spec.Scope, d.Status = "", crd{}.Status
	// The rotation of a certificate changes no object.
	if webhook, ok := d.Spec.Conversion["webhook"].(map[string]any); ok {
		if client, ok := webhook["clientConfig"].(map[string]any); ok {
			delete(client, "caBundle")
		}
	}
	canonical, err := json.Marshal(d) // sorts map keys
	if err != nil {
		return "", fmt.Errorf("digest of a definition: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:16]), nil
}

// crd returns the CustomResourceDefinition of r, or nil if there is none, or none at the moment.
func (c *Cluster) crd(ctx context.Context, r Resource) (*crd, error) {
	if !MayBeCustom(r.GVR.Group) {
		return nil, nil
	}
	name := r.GVR.GroupResource().String()
	body, err := c.get(ctx, "application/json", "apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions", name)
	if isGone(err) {
		return nil, nil
	}
	if apierrors.IsNotFound(err) { // the path itself: a kube-apiserver has it
		return nil, fmt.Errorf("definition of %s: %w: an agent that is asked for it has to cache customresourcedefinitions", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("definition of %s: %w", name, err)
	}
	var d crd
	if err := json.Unmarshal(body, &d); err != nil || d.Metadata.UID == "" {
		return nil, fmt.Errorf("definition of %s: the answer is none: %s", name, hintNotKubernetes)
	}
	return &d, nil
}
