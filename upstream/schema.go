package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// definition is the part of a CustomResourceDefinition that decides how its objects
// are served.
type definition struct {
	Metadata struct {
		UID string `json:"uid"`
	} `json:"metadata"`
	Spec struct {
		Conversion            map[string]any      `json:"conversion"`
		PreserveUnknownFields bool                `json:"preserveUnknownFields"`
		Versions              []definitionVersion `json:"versions"`
	} `json:"spec"`
}

type definitionVersion struct {
	Name    string `json:"name"`
	Served  bool   `json:"served"`
	Storage bool   `json:"storage"`
	Schema  any    `json:"schema"`
}

// builtin are the groups with a dot that Kubernetes serves itself. No definition has one
// without a dot. Whoever may not read definitions is refused before it is known that
// there is none, and shall not be told to get a right that is of no use.
var builtin = map[string]bool{
	"admissionregistration.k8s.io": true,
	"apiextensions.k8s.io":         true,
	"apiregistration.k8s.io":       true,
	"authentication.k8s.io":        true,
	"authorization.k8s.io":         true,
	"certificates.k8s.io":          true,
	"coordination.k8s.io":          true,
	"discovery.k8s.io":             true,
	"events.k8s.io":                true,
	"flowcontrol.apiserver.k8s.io": true,
	"internal.apiserver.k8s.io":    true,
	"networking.k8s.io":            true,
	"node.k8s.io":                  true,
	"rbac.authorization.k8s.io":    true,
	"resource.k8s.io":              true,
	"scheduling.k8s.io":            true,
	"storage.k8s.io":               true,
	"storagemigration.k8s.io":      true,
}

// MayBeCustom says that resources of a group may be custom ones, whose definitions
// [Cluster.Schema] reads.
func MayBeCustom(group string) bool { return strings.Contains(group, ".") && !builtin[group] }

// Schema returns a digest of what decides the form in which a custom resource's
// objects are served: its definition, in as far as it matters to that version. Objects
// that nobody changes are served in another form once that changes, under the
// resourceVersions that they had.
//
// It is empty where no definition makes the resource, or none does at the moment.
func (c *Cluster) Schema(ctx context.Context, r Resource) (string, error) {
	if !MayBeCustom(r.GVR.Group) {
		return "", nil
	}
	name := r.GVR.GroupResource().String()
	body, err := c.get(ctx, "application/json", "apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions", name)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("definition of %s: %w", name, err)
	}
	var d definition
	if err := json.Unmarshal(body, &d); err != nil || d.Metadata.UID == "" {
		return "", fmt.Errorf("definition of %s: the answer is none: %s", name, hintNotKubernetes)
	}
	// A certificate that is rotated changes no object.
	if webhook, ok := d.Spec.Conversion["webhook"].(map[string]any); ok {
		if client, ok := webhook["clientConfig"].(map[string]any); ok {
			delete(client, "caBundle")
		}
	}
	for i, v := range d.Spec.Versions {
		if v.Name != r.GVR.Version {
			d.Spec.Versions[i].Schema = nil
		}
	}
	canonical, err := json.Marshal(d) // sorts what is in maps
	if err != nil {
		return "", fmt.Errorf("definition of %s: %w", name, err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:16]), nil
}
