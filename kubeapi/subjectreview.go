package kubeapi

import (
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/access"
)

// LocalUser is the name of a caller that this machine lets in. The cluster knows no user of this name.
const LocalUser = "snapcache:local"

// reviewSubject answers a SelfSubjectReview with the user of the request.
func (s *Server) reviewSubject(r *request, body *reviewBody) (runtime.Object, error) {
	var asked authenticationv1.SelfSubjectReview
	if err := body.decode(&asked, authenticationv1.SchemeGroupVersion.WithKind(subjectReview)); err != nil {
		return nil, err
	}
	review := &authenticationv1.SelfSubjectReview{
		TypeMeta:   asked.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(s.opts.Clock.Now().Truncate(time.Second))},
	}
	review.Status.UserInfo.Username = LocalUser
	if c := access.CallerOf(r.Context()); c != nil && !c.Local {
		review.Status.UserInfo = c.User
	}
	return review, nil
}
