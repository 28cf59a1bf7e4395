package discovery

import (
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verbs are what the API offers of a resource, subresourceVerbs what it offers of a subresource.
var (
	verbs            = metav1.Verbs{"get", "list", "watch"}
	subresourceVerbs = metav1.Verbs{"get"}
)

// legacy returns the entries of the resource and its subresources in an APIResourceList.
func (r Resource) legacy() []metav1.APIResource {
	entries := []metav1.APIResource{{
		Name:         r.Resource,
		SingularName: r.Singular,
		Namespaced:   r.Namespaced,
		Kind:         r.Kind,
		Verbs:        verbs,
		ShortNames:   r.ShortNames,
		Categories:   r.Categories,
	}}
	for _, sub := range slices.Sorted(slices.Values(r.Subresources)) {
		entries = append(entries, metav1.APIResource{
			Name: r.Resource + "/" + sub, Namespaced: r.Namespaced, Kind: r.Kind, Verbs: subresourceVerbs,
		})
	}
	return entries
}

// aggregated returns the entry of the resource in an APIGroupDiscoveryList.
func (r Resource) aggregated() apidiscovery.APIResourceDiscovery {
	kind := &metav1.GroupVersionKind{Kind: r.Kind}
	if r.Custom { // for other resources a kube-apiserver leaves group and version to the client
		kind.Group, kind.Version = r.Group, r.Version
	}
	entry := apidiscovery.APIResourceDiscovery{
		Resource:         r.Resource,
		ResponseKind:     kind,
		Scope:            apidiscovery.ScopeCluster,
		SingularResource: r.Singular,
		Verbs:            verbs,
		ShortNames:       r.ShortNames,
		Categories:       r.Categories,
	}
	if r.Namespaced {
		entry.Scope = apidiscovery.ScopeNamespace
	}
	for _, sub := range slices.Sorted(slices.Values(r.Subresources)) {
		entry.Subresources = append(entry.Subresources, apidiscovery.APISubresourceDiscovery{
			Subresource: sub, ResponseKind: kind, Verbs: subresourceVerbs,
		})
	}
	return entry
}
