package informer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/store"
)

// Collections are stored under these ids, so the ids must not change.
func TestCollectionID(t *testing.T) {
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	long := "environment in (production,staging),tier=frontend,team notin (a,b,c,d,e)"
	for _, c := range []struct {
		name    string
		example runtime.Object
		scope   store.Scope
		want    string
	}{
		{"a Go type", &corev1.Pod{}, store.Scope{GVR: deployments}, "deployments.apps"},
		{"one namespace", &corev1.Pod{}, store.Scope{GVR: deployments, Namespace: "shop"}, "deployments.apps@shop"},
		{"metadata", &metav1.PartialObjectMetadata{}, store.Scope{GVR: deployments, Namespace: "shop"}, "deployments.apps@shop (metadata)"},
		{"a tree", &unstructured.Unstructured{}, store.Scope{GVR: deployments}, "deployments.apps (unstructured)"},
		{"a version or a transform", &corev1.Pod{}, store.Scope{GVR: deployments.GroupResource().WithVersion("v2"), Transform: "t"}, "deployments.apps"},
		{"labels", &corev1.Pod{}, store.Scope{GVR: deployments, LabelSelector: "app=a"}, "deployments.apps [labels app=a]"},
		{"fields", &metav1.PartialObjectMetadata{}, store.Scope{GVR: deployments, Namespace: "shop", FieldSelector: "metadata.name=x"}, "deployments.apps@shop (metadata) [fields metadata.name=x]"},
		{"both", &corev1.Pod{}, store.Scope{GVR: deployments, LabelSelector: "app=a", FieldSelector: "metadata.name=x"}, "deployments.apps [labels app=a; fields metadata.name=x]"},
		{"a long selector", &corev1.Pod{}, store.Scope{GVR: deployments, LabelSelector: long}, "deployments.apps [labels environment in (production,stagin~8af602d231bac9b8]"},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, collectionID(c.example, c.scope)) })
	}
	other := collectionID(&corev1.Pod{}, store.Scope{GVR: deployments, LabelSelector: strings.Replace(long, "e)", "f)", 1)})
	require.NotEqual(t, collectionID(&corev1.Pod{}, store.Scope{GVR: deployments, LabelSelector: long}), other, "the selectors differ in the part that is cut")
}
