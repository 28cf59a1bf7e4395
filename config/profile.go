package config

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// Profile names a set of resources to cache, to which [AgentConfiguration.Resources] is added.
type Profile string

// ProfileNode caches the resources that a node's components read (kubelet, kube-proxy and CoreDNS), and
// the ones by which [Access] decides while the server can't be reached.
const ProfileNode Profile = "node"

// nodeResources returns the resources of [ProfileNode]. Leases and events are not among them: they
// change all the time, and no component depends on an old one.
func nodeResources(node string) []Resource {
	pods := Resource{Resource: ResourceName{Resource: "pods"}, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	return slices.Concat(named("nodes"), []Resource{pods}, named(
		"configmaps", "services", "endpointslices.discovery.k8s.io", "namespaces",
		"servicecidrs.networking.k8s.io", // served since Kubernetes 1.33
		"runtimeclasses.node.k8s.io",
		// A kubelet needs the volumes of a pod to start it.
		"persistentvolumeclaims", "persistentvolumes", "volumeattachments.storage.k8s.io", "csidrivers.storage.k8s.io", "csinodes.storage.k8s.io",
		// Tokens are bound to service accounts, and rights are granted to them.
		"serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
		"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
	))
}

// named returns resources as a whole, each by resource[.group].
func named(names ...string) []Resource {
	all := make([]Resource, len(names))
	for i, name := range names {
		all[i].Resource.Resource, all[i].Resource.Group, _ = strings.Cut(name, ".")
	}
	return all
}

// needsNode reports whether the configuration is not complete without the node's name.
func (c *AgentConfiguration) needsNode() bool {
	return c.Profile != "" || c.KubernetesAPI.Signer == SignerKubeletServing
}

// setNodeName sets the node's name if it is needed, as a kubelet does: the host's in lower case.
func (c *AgentConfiguration) setNodeName(s surroundings) {
	if !c.needsNode() {
		return
	}
	if c.NodeName = cmp.Or(c.NodeName, s.getenv("NODE_NAME")); c.NodeName == "" {
		if host, err := s.hostname(); err == nil {
			c.NodeName = strings.ToLower(strings.TrimSpace(host))
		}
	}
}

// expandProfile appends the profile's resources that the configuration does not list itself.
func (c *AgentConfiguration) expandProfile() {
	if c.Profile != ProfileNode {
		return
	}
	listed := slices.Clone(c.Resources)
	for _, r := range nodeResources(c.NodeName) {
		if !slices.ContainsFunc(listed, func(l Resource) bool { return l.Resource.covers(r.Resource) }) {
			c.Resources = append(c.Resources, r)
		}
	}
}
