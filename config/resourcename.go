package config

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ResourceName names a resource as kubectl's arguments do: resource[.version][.group]. With an
// empty Version the server chooses. An empty Group is the core group or, if the server has no such
// resource there, the one that discovery finds.
type ResourceName struct {
	Resource string
	Version  string
	Group    string
}

// versionPattern matches Kubernetes versions. It distinguishes a version from a group in the second
// part of a name: v1 in widgets.v1.example.com is a version, discovery in
// endpointslices.discovery.k8s.io is not.
var versionPattern = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// ParseResourceName parses pods, deployments.apps, deployments.v1.apps or widgets.v1.example.com. A
// core resource with a version is pods.v1 (kubectl's pods.v1. is accepted too).
func ParseResourceName(s string) (ResourceName, error) {
	bad := func(why string) (ResourceName, error) {
		return ResourceName{}, fmt.Errorf("%s is not a resource: %s", quote(s), why)
	}
	name, rest, dotted := strings.Cut(s, ".")
	switch {
	case s == "":
		return bad("give one, as in pods, deployments.apps or widgets.v1.example.com")
	case strings.Contains(s, "/"):
		return bad("subresources can't be watched, and a group follows the name, as in deployments.apps")
	case len(validation.IsDNS1035Label(name)) > 0:
		return bad("the plural name in lower case is needed, as in pods, deployments.apps or widgets.v1.example.com")
	case dotted && rest == "":
		return bad("it ends with a dot")
	}
	n := ResourceName{Resource: name}
	if first, group, _ := strings.Cut(rest, "."); versionPattern.MatchString(first) {
		n.Version, n.Group = first, group
	} else {
		n.Group = rest
	}
	if n.Group != "" && len(validation.IsDNS1123Subdomain(n.Group)) > 0 {
		return bad(fmt.Sprintf("its group %s is not a domain name in lower case", quote(n.Group)))
	}
	return n, nil
}

// String returns the form that [ParseResourceName] reads.
func (n ResourceName) String() string {
	s := n.Resource
	if n.Version != "" {
		s += "." + n.Version
	}
	if n.Group != "" {
		s += "." + n.Group
	}
	return s
}

// GroupResource returns the name without its version.
func (n ResourceName) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: n.Group, Resource: n.Resource}
}

// CollectionID names a collection of the resource: "pods", "deployments.apps", "pods@shop". The version is no part
// of it: a version that changes causes a relist, not a second copy. An empty namespace means all.
func (n ResourceName) CollectionID(namespace string) string {
	id := n.GroupResource().String()
	if namespace != "" {
		id += "@" + namespace
	}
	return id
}

// covers reports whether n names the resource of other, possibly without the group that discovery
// finds.
func (n ResourceName) covers(other ResourceName) bool {
	return n.Resource == other.Resource && (n.Group == other.Group || n.Group == "")
}

// IsSecrets reports whether the name means the Secrets of the core group, in the plural or the
// singular, which discovery accepts too.
func (n ResourceName) IsSecrets() bool {
	return n.Group == "" && (n.Resource == "secrets" || n.Resource == "secret")
}

// MarshalText implements [encoding.TextMarshaler].
func (n ResourceName) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseResourceName].
func (n *ResourceName) UnmarshalText(text []byte) error {
	parsed, err := ParseResourceName(string(text))
	if err != nil {
		return err
	}
	*n = parsed
	return nil
}
