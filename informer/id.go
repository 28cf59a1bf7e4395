package informer

import (
	"crypto/sha256"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/store"
)

// collectionID returns the id of an informer's collection: "pods", "deployments.apps@shop", "pods
// (metadata) [labels app=a]". Each of the three forms of one resource is a collection of its own,
// and so are the objects of different selectors.
func collectionID(example runtime.Object, scope store.Scope) string {
	id := scope.GVR.GroupResource().String()
	if scope.Namespace != "" {
		id += "@" + scope.Namespace
	}
	switch example.(type) {
	case *metav1.PartialObjectMetadata:
		id += " (metadata)"
	case runtime.Unstructured:
		id += " (unstructured)"
	}
	var selectors []string
	if scope.LabelSelector != "" {
		selectors = append(selectors, "labels "+scope.LabelSelector)
	}
	if scope.FieldSelector != "" {
		selectors = append(selectors, "fields "+scope.FieldSelector)
	}
	if len(selectors) > 0 {
		id += " [" + shortened(strings.Join(selectors, "; ")) + "]"
	}
	return id
}

// maxSelectors is how many bytes of selectors an id holds. Longer selectors are truncated to
// shortenedTo bytes, followed by 64 bits of a digest of the whole.
const (
	maxSelectors = 64
	shortenedTo  = 40
)

// shortened returns selectors for an id: in full or, if they are longer than maxSelectors,
// truncated and with a digest.
func shortened(selectors string) string {
	if len(selectors) <= maxSelectors {
		return selectors
	}
	sum := sha256.Sum256([]byte(selectors))
	return fmt.Sprintf("%s~%x", strings.ToValidUTF8(selectors[:shortenedTo], ""), sum[:8])
}
