package peer

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Resource is a cached resource.
type Resource struct {
	Name string // as in the agent's configuration
	GVR  schema.GroupVersionResource
	Kind string
	// Type is its Go type; nil for a custom resource, which has none here.
	Type client.Object
}

// Resources are all resources of the benchmarks.
var Resources = []Resource{
	{"pods", corev1.SchemeGroupVersion.WithResource("pods"), "Pod", &corev1.Pod{}},
	{"configmaps", corev1.SchemeGroupVersion.WithResource("configmaps"), "ConfigMap", &corev1.ConfigMap{}},
	{"nodes", corev1.SchemeGroupVersion.WithResource("nodes"), "Node", &corev1.Node{}},
	{"endpointslices.discovery.k8s.io", discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "EndpointSlice", &discoveryv1.EndpointSlice{}},
	{"widgets.v1.example.com", schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, "Widget", nil},
}

// Services is cached by the nodes of plan return only.
var Services = Resource{"services", corev1.SchemeGroupVersion.WithResource("services"), "Service", &corev1.Service{}}

// ResourceOf returns the resource with a name.
func ResourceOf(name string) (Resource, error) {
	for _, r := range append(slices.Clone(Resources), Services) {
		if r.Name == name {
			return r, nil
		}
	}
	return Resource{}, fmt.Errorf("resource %q is unknown here", name)
}
