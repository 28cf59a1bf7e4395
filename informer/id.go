package informer

import (
	"crypto/sha256"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/store"
)

// collectionID names the collection of an informer: "pods", "deployments.apps@shop",
// "pods (metadata) [labels app=a]". The three forms of one resource are three caches, and
// so is what different selectors select.
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

// maxSelectors is how many bytes of selectors an id has. shortenedTo of longer ones are left,
// with 64 bits of a digest of them all.
const (
	maxSelectors = 64
	shortenedTo  = 40
)

// shortened returns the part of an id that names selectors.
func shortened(selectors string) string {
	if len(selectors) <= maxSelectors {
		return selectors
	}
	sum := sha256.Sum256([]byte(selectors))
	return fmt.Sprintf("%s~%x", strings.ToValidUTF8(selectors[:shortenedTo], ""), sum[:8])
}

// kindID names the collection of a kind, or, if no scheme tells the kind, of a Go type,
// in a namespace and under selectors.
func kindID(example runtime.Object, scheme *runtime.Scheme, scope store.Scope) string {
	scope.GVR = guessResource(example, kindOf(example, scheme))
	return collectionID(example, scope)
}
