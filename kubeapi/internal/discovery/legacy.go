package discovery

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// addAll adds the aggregated documents of groups, and the legacy ones that are made of them.
func (d *Documents) addAll(core apidiscovery.APIGroupDiscovery, named []apidiscovery.APIGroupDiscovery) {
	list := metav1.APIGroupList{TypeMeta: typeMeta("APIGroupList"), Groups: []metav1.APIGroup{}}
	d.addGroup(core)
	for _, g := range named {
		d.addGroup(g)
		list.Groups = append(list.Groups, legacyGroup(g))
	}
	d.add("/api", nil, []apidiscovery.APIGroupDiscovery{core})
	d.add("/apis", encode(list), named)
}

// addGroup adds the documents of a group and of its versions.
func (d *Documents) addGroup(g apidiscovery.APIGroupDiscovery) {
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
	main.Name, main.SingularName, main.Verbs = r.Resource, r.SingularResource, r.Verbs
	main.ShortNames, main.Categories = r.ShortNames, r.Categories
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

// add adds the documents of a path; groups is the content of the aggregated one, nil if there is none.
func (d *Documents) add(path string, legacy []byte, groups []apidiscovery.APIGroupDiscovery) {
	doc := document{legacy: legacy}
	if groups != nil {
		doc.aggregated = encode(apidiscovery.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscovery.SchemeGroupVersion.String()},
			Items:    groups,
		})
		doc.etag = fmt.Sprintf(`"%X"`, sha256.Sum256(doc.aggregated))
	}
	d.byPath[path] = doc
}

// legacyGroup returns the entry of a group in an APIGroupList. The first version is the preferred one.
func legacyGroup(g apidiscovery.APIGroupDiscovery) metav1.APIGroup {
	out := metav1.APIGroup{Name: g.Name}
	for _, v := range g.Versions {
		gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v.Version})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func typeMeta(kind string) metav1.TypeMeta { return metav1.TypeMeta{Kind: kind, APIVersion: "v1"} }

// encode returns the JSON of a document, with the newline at its end that a kube-apiserver sends.
func encode(document any) []byte {
	raw, err := json.Marshal(document)
	if err != nil {
		panic(err) // the types of documents can always be encoded
	}
	return append(raw, '\n')
}
