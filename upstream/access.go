package upstream

import (
	"context"
	"encoding/json"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Allowed asks the server whether this user may make a request, with a SelfSubjectAccessReview,
// which every authenticated user may create.
func (c *Cluster) Allowed(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return false, err
	}
	answer, err := c.client.Post().AbsPath("apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
		Body(body).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return false, fmt.Errorf("review access: %w", err)
	}
	review = authorizationv1.SelfSubjectAccessReview{}
	if err := json.Unmarshal(answer, &review); err != nil || review.Kind != "SelfSubjectAccessReview" {
		return false, fmt.Errorf("review access: the answer is no review: %s", hintNotKubernetes)
	}
	return review.Status.Allowed, nil
}
