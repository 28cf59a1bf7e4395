package access

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Review returns the decision that Authorize would make on a request of the context's caller, as the status
// of a review. A refusal is not logged. The error is a kube-apiserver's if the server can't be asked for too
// many questions. The caller has to be a user that the cluster knows.
func (a *Authorizer) Review(ctx context.Context, ask Request) (authorizationv1.SubjectAccessReviewStatus, error) {
	d, err := a.judge(ctx, ask, CallerOf(ctx))
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return d.status, nil
}
