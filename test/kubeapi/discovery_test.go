package kubeapi

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// wholeObjects are the subresources whose GET returns the object.
var wholeObjects = []string{"status", "resize", "ephemeralcontainers"}

// adaptDiscovery reduces a discovery document of the kube-apiserver to what the agent serves.
func adaptDiscovery(_ request, server, cached *answer) bool {
	if len(server.Body) != 1 || len(cached.Body) != 1 {
		return false
	}
	document, _ := server.Body[0].(map[string]any)
	second, _ := cached.Body[0].(map[string]any)
	switch document["kind"] {
	case "APIVersions":
		// The address at which the client found the server.
		delete(document, "serverAddressByClientCIDRs")
		delete(second, "serverAddressByClientCIDRs")
	case "APIGroupList":
		filter(document, "groups", func(group map[string]any) bool {
			keepVersions(group, group["name"])
			return len(list(group, "versions")) > 0
		})
	case "APIGroup":
		keepVersions(document, document["name"])
	case "APIResourceList":
		sortByName(document)
		sortByName(second)
		gv, _ := schema.ParseGroupVersion(document["groupVersion"].(string))
		filter(document, "resources", func(r map[string]any) bool {
			delete(r, "storageVersionHash")
			if isReview(gv.WithResource(r["name"].(string))) {
				return true
			}
			name, sub, isSub := strings.Cut(r["name"].(string), "/")
			return isServed(gv.WithResource(name)) && (!isSub || slices.Contains(wholeObjects, sub)) && readOnly(r)
		})
	case "APIGroupDiscoveryList":
		filter(document, "items", func(group map[string]any) bool {
			name, _ := at(group, "metadata", "name").(string)
			filter(group, "versions", func(version map[string]any) bool {
				gv := schema.GroupVersion{Group: name, Version: version["version"].(string)}
				filter(version, "resources", func(r map[string]any) bool {
					if isReview(gv.WithResource(r["resource"].(string))) {
						return true
					}
					filter(r, "subresources", func(sub map[string]any) bool {
						return slices.Contains(wholeObjects, sub["subresource"].(string)) && readOnly(sub)
					})
					return isServed(gv.WithResource(r["resource"].(string))) && readOnly(r)
				})
				return len(list(version, "resources")) > 0
			})
			return len(list(group, "versions")) > 0
		})
	default:
		return false
	}
	return true
}

// keepVersions keeps the served versions of a group.
func keepVersions(group map[string]any, name any) {
	filter(group, "versions", func(version map[string]any) bool {
		return slices.ContainsFunc(shared.resources, func(r *resource) bool {
			return r.Group == name && r.Version == version["version"]
		}) || name == "authorization.k8s.io" || name == "authentication.k8s.io"
	})
}

// readOnly leaves the verbs that read, and reports whether there are any.
func readOnly(r map[string]any) bool {
	verbs := slices.DeleteFunc(list(r, "verbs"), func(verb any) bool { return verb != "get" && verb != "list" && verb != "watch" })
	r["verbs"] = verbs
	return len(verbs) > 0
}

// isReview reports whether a resource is one of the reviews of the caller's own rights.
func isReview(gvr schema.GroupVersionResource) bool {
	return slices.Contains([]string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}, gvr.Resource)
}

func isServed(gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(shared.resources, func(r *resource) bool { return r.GroupVersionResource == gvr })
}

func list(m map[string]any, name string) []any {
	l, _ := m[name].([]any)
	return l
}

// filter removes the elements of a list for which keep returns false.
func filter(m map[string]any, name string, keep func(map[string]any) bool) {
	if _, ok := m[name]; !ok {
		return
	}
	m[name] = slices.DeleteFunc(list(m, name), func(v any) bool {
		element, ok := v.(map[string]any)
		return !ok || !keep(element)
	})
	if len(list(m, name)) == 0 && name == "subresources" {
		delete(m, name)
	}
}

// sortByName sorts the resources in a document. A kube-apiserver has custom resources in no order.
func sortByName(document map[string]any) {
	slices.SortFunc(list(document, "resources"), func(a, b any) int {
		return strings.Compare(at(a, "name").(string), at(b, "name").(string))
	})
}
