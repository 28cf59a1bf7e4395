package kubeapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/kubeapi/internal/selector"
	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// covering returns the collection, among several of one resource, that has every object that a request
// selects.
func covering(of []*served, namespace string, sel selector.Selector) (*served, error) {
	for _, s := range of {
		if s.has(namespace) && sel.Within(s.scope) {
			return s, nil
		}
	}
	return nil, outOfScope(of)
}

// notCovered is the error of a request for something that is not cached, so that only the server could
// answer it.
type notCovered struct{ *apierrors.StatusError }

func isNotCovered(err error) bool { return errors.As(err, new(notCovered)) }

// outOfScope refuses a request that no collection covers. The kube-apiserver's node authorizer
// answers like this if a kubelet asks for more than its own pods.
func outOfScope(of []*served) error {
	var has []string
	for _, s := range of {
		has = append(has, s.describeScope())
	}
	i := of[0].info
	err := status.Error(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf(
		"%s is forbidden: the request asks for more than is cached here, which is %s: narrow the request, or ask the kube-apiserver",
		groupResource(i), strings.Join(has, "; ")))
	err.ErrStatus.Details = &metav1.StatusDetails{Group: i.Group, Kind: i.Resource}
	return notCovered{err}
}

// describeScope describes the objects of a collection.
func (s *served) describeScope() string {
	text := s.info.Resource
	if s.info.Namespace != "" {
		text += " in the namespace " + s.info.Namespace
	}
	if s.info.LabelSelector != "" {
		text += " with the labels " + s.info.LabelSelector
	}
	if s.info.FieldSelector != "" {
		text += " with the fields " + s.info.FieldSelector
	}
	return text
}

// complete reports whether the collection has every object of its resource in a namespace, so that
// an object that is not there does not exist.
func (s *served) complete(namespace string) bool {
	return s.scope.Empty() && s.has(namespace)
}

// has reports whether the collection has objects of a namespace, empty for all.
func (s *served) has(namespace string) bool {
	return s.info.Namespace == "" || s.info.Namespace == namespace
}
