package discovery

import (
	"encoding/json"
	"errors"
	"fmt"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Parse returns the documents of a server whose aggregated ones, at /api and at /apis, are given. Its other documents are
// made of these; they lack the hashes of storage versions.
func Parse(core, groups []byte) (*Documents, error) {
	one, err := parseGroups(core)
	if err == nil && len(one) != 1 {
		err = fmt.Errorf("the document of the core group has %d groups", len(one))
	}
	if err != nil {
		return nil, err
	}
	named, err := parseGroups(groups)
	if err != nil {
		return nil, err
	}
	d := &Documents{byPath: map[string]document{}}
	list := metav1.APIGroupList{TypeMeta: typeMeta("APIGroupList"), Groups: []metav1.APIGroup{}}
	d.addParsed(one[0])
	for _, g := range named {
		d.addParsed(g)
		list.Groups = append(list.Groups, legacyGroup(g))
	}
	d.add("/api", nil, one)
	d.add("/apis", encode(list), named)
	return d, nil
}

// parseGroups returns the groups of an aggregated document. Before Kubernetes 1.30 its version is v2beta1, with the
// same fields.
func parseGroups(raw []byte) ([]apidiscovery.APIGroupDiscovery, error) {
	var list apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal(raw, &list); err != nil || list.Kind != "APIGroupDiscoveryList" {
		return nil, errors.New("the answer is no aggregated discovery, which Kubernetes has from 1.27")
	}
	for _, g := range list.Items {
		if len(g.Versions) == 0 {
			return nil, fmt.Errorf("the group %q has no versions", g.Name)
		}
	}
	if list.Items == nil {
		list.Items = []apidiscovery.APIGroupDiscovery{}
	}
	return list.Items, nil
}

// addParsed adds the documents of a group and of its versions.
func (d *Documents) addParsed(g apidiscovery.APIGroupDiscovery) {
	for _, v := range g.Versions {
		gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
		list := metav1.APIResourceList{TypeMeta: typeMeta("APIResourceList"), GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
		for _, r := range v.Resources {
			list.APIResources = append(list.APIResources, legacyResources(gv, r)...)
		}
		path := "/apis/" + gv.String()
		if g.Name == "" {
			path = "/api/" + v.Version
			list.APIVersion = "" // as in Kubernetes 1.1
		}
		d.add(path, encode(list), nil)
	}
	if g.Name != "" {
		legacy := legacyGroup(g)
		legacy.TypeMeta = typeMeta("APIGroup")
		d.add("/apis/"+g.Name, encode(legacy), nil)
	}
}

// legacyResources returns the entries of a resource and its subresources in an APIResourceList.
func legacyResources(gv schema.GroupVersion, r apidiscovery.APIResourceDiscovery) []metav1.APIResource {
	namespaced := r.Scope == apidiscovery.ScopeNamespace
	kind := func(of *metav1.GroupVersionKind, fallback *metav1.GroupVersionKind) metav1.APIResource {
		if of == nil {
			of = fallback
		}
		out := metav1.APIResource{Namespaced: namespaced}
		if of != nil {
			out.Kind = of.Kind
			if (schema.GroupVersion{Group: of.Group, Version: of.Version}) != gv {
				out.Group, out.Version = of.Group, of.Version
			}
		}
		return out
	}
	main := kind(r.ResponseKind, nil)
	main.Name, main.SingularName, main.Verbs, main.ShortNames, main.Categories = r.Resource, r.SingularResource, r.Verbs, r.ShortNames, r.Categories
	var entries []metav1.APIResource
	if len(r.Verbs) > 0 { // there may be subresources alone
		entries = append(entries, main)
	}
	for _, sub := range r.Subresources {
		entry := kind(sub.ResponseKind, r.ResponseKind)
		entry.Name, entry.Verbs = r.Resource+"/"+sub.Subresource, sub.Verbs
		entries = append(entries, entry)
	}
	return entries
}
