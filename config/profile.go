package config

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// Profile names a set of resources to cache, to which [AgentConfiguration.Resources] is added.
type Profile string

// ProfileNode is what the components of a node read: kubelet, kube-proxy and CoreDNS; and what
// [Access] decides by while the server can't be reached.
const ProfileNode Profile = "node"

// nodeResources returns the resources of [ProfileNode]. Leases and events are not among them: they
// change all the time, and no component depends on an old one.
func nodeResources(node string) []Resource {
	return []Resource{
		{Resource: ResourceName{Resource: "nodes"}},
		{Resource: ResourceName{Resource: "pods"}, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()},
		{Resource: ResourceName{Resource: "configmaps"}},
		{Resource: ResourceName{Resource: "services"}},
		{Resource: ResourceName{Resource: "endpointslices", Group: "discovery.k8s.io"}},
		{Resource: ResourceName{Resource: "namespaces"}},
		{Resource: ResourceName{Resource: "servicecidrs", Group: "networking.k8s.io"}}, // served since Kubernetes 1.33
		{Resource: ResourceName{Resource: "runtimeclasses", Group: "node.k8s.io"}},
		// A kubelet needs the volumes of a pod to start it.
		{Resource: ResourceName{Resource: "persistentvolumeclaims"}},
		{Resource: ResourceName{Resource: "persistentvolumes"}},
		{Resource: ResourceName{Resource: "volumeattachments", Group: "storage.k8s.io"}},
		{Resource: ResourceName{Resource: "csidrivers", Group: "storage.k8s.io"}},
		{Resource: ResourceName{Resource: "csinodes", Group: "storage.k8s.io"}},
		// Tokens are bound to service accounts, and rights are granted to them.
		{Resource: ResourceName{Resource: "serviceaccounts"}},
		{Resource: ResourceName{Resource: "roles", Group: "rbac.authorization.k8s.io"}},
		{Resource: ResourceName{Resource: "rolebindings", Group: "rbac.authorization.k8s.io"}},
		{Resource: ResourceName{Resource: "clusterroles", Group: "rbac.authorization.k8s.io"}},
		{Resource: ResourceName{Resource: "clusterrolebindings", Group: "rbac.authorization.k8s.io"}},
	}
}

// expandProfile appends the profile's resources that the configuration does not list itself, and
// sets the node's name, as a kubelet does: the host's in lower case.
func (c *AgentConfiguration) expandProfile(s surroundings) {
	if c.Profile != ProfileNode {
		return
	}
	if c.NodeName = cmp.Or(c.NodeName, s.getenv("NODE_NAME")); c.NodeName == "" {
		if host, err := s.hostname(); err == nil {
			c.NodeName = strings.ToLower(strings.TrimSpace(host))
		}
	}
	listed := slices.Clone(c.Resources)
	for _, r := range nodeResources(c.NodeName) {
		if !slices.ContainsFunc(listed, func(l Resource) bool { return l.Resource.covers(r.Resource) }) {
			c.Resources = append(c.Resources, r)
		}
	}
}
