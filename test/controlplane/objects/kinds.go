package objects

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a resource that Churn and Touch take by its short name.
type kind struct {
	gvr schema.GroupVersionResource
	// make returns object number i; nil if Churn can't make any.
	make func(namespace string, i int, seed int64) (*unstructured.Unstructured, error)
	// status returns a merge patch of the status; nil if there is none.
	status func(s source) map[string]any
}

var kinds = map[string]kind{
	"pods": {
		gvr: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		make: func(namespace string, i int, seed int64) (*unstructured.Unstructured, error) {
			return toUnstructured(Pod(namespace, i, seed))
		},
		status: func(s source) map[string]any {
			return map[string]any{"message": "probe " + s.hex(8), "reason": s.from("Probed", "Restarted", "Throttled")}
		},
	},
	"configmaps": {
		gvr: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		make: func(namespace string, i int, seed int64) (*unstructured.Unstructured, error) {
			return toUnstructured(ConfigMap(namespace, i, seed))
		},
	},
	"widgets": {
		gvr: WidgetResource,
		make: func(namespace string, i int, seed int64) (*unstructured.Unstructured, error) {
			return Widget(namespace, i, seed), nil
		},
		status: widgetStatus,
	},
	"secrets":        {gvr: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}},
	"services":       {gvr: schema.GroupVersionResource{Version: "v1", Resource: "services"}},
	"nodes":          {gvr: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}},
	"namespaces":     {gvr: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}},
	"endpointslices": {gvr: schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}},
	"deployments":    {gvr: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}},
}

func kindOf(resource string) (kind, error) {
	if k, ok := kinds[resource]; ok {
		return k, nil
	}
	known := make([]string, 0, len(kinds))
	for name := range kinds {
		known = append(known, name)
	}
	slices.Sort(known)
	return kind{}, fmt.Errorf("%w: %q is none of %s", ErrUnknownResource, resource, strings.Join(known, ", "))
}

func toUnstructured(object runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	u := &unstructured.Unstructured{Object: content}
	// The apiserver sets these fields itself.
	u.SetManagedFields(nil)
	u.SetUID("")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "status")
	return u, nil
}
