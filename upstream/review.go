package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Allowed asks the server whether this user may make a request, with a SelfSubjectAccessReview,
// which every authenticated user may create.
func (c *Cluster) Allowed(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
	err := c.review(ctx, authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), &review, &review.TypeMeta)
	return review.Status.Allowed, err
}

// ReviewAccess asks the server whether a user may make a request, with a SubjectAccessReview. This
// needs the permission to create subjectaccessreviews.
func (c *Cluster) ReviewAccess(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	review := authorizationv1.SubjectAccessReview{Spec: spec}
	err := c.review(ctx, authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), &review, &review.TypeMeta)
	return review.Status, err
}

// ReviewToken asks the server whose bearer token this is, with a TokenReview for the server's own
// audiences. This needs the permission to create tokenreviews. No error has the token in it.
func (c *Cluster) ReviewToken(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	err := c.review(ctx, authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), &review, &review.TypeMeta)
	return review.Status, err
}

// review posts a review of a kind and decodes the server's answer into it. of is the review's own type.
func (c *Cluster) review(ctx context.Context, gvk schema.GroupVersionKind, review any, of *metav1.TypeMeta) error {
	of.SetGroupVersionKind(gvk)
	gv, kind := gvk.GroupVersion(), gvk.Kind
	resource := strings.ToLower(kind) + "s"
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	answer, err := c.client.Post().AbsPath(append(apiPath(gv), resource)...).
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
		Body(body).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	*of = metav1.TypeMeta{}
	if err := json.Unmarshal(answer, review); err != nil || of.Kind != kind {
		return fmt.Errorf("%s: the answer is no review: %s", kind, hintNotKubernetes)
	}
	return nil
}

// ClientCA returns the certificates, in PEM, that the server accepts clients' certificates from, as it
// publishes them for other servers: see kubectl get configmap -n kube-system
// extension-apiserver-authentication. They are empty if the server accepts none; ok is false if it
// publishes nothing about that.
func (c *Cluster) ClientCA(ctx context.Context) (pem []byte, ok bool, err error) {
	body, err := c.get(ctx, "application/json", "api", "v1", "namespaces", "kube-system", "configmaps", "extension-apiserver-authentication")
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("client CA: %w", err)
	}
	var config struct{ Data map[string]string }
	if err := json.Unmarshal(body, &config); err != nil {
		return nil, false, fmt.Errorf("client CA: %w", err)
	}
	return []byte(config.Data["client-ca-file"]), true, nil
}

// SigningKeys returns the issuer of the cluster's service account tokens, and the keys that it signs
// them with, as a JSON Web Key Set. See "Service account issuer discovery" in the Kubernetes
// documentation.
func (c *Cluster) SigningKeys(ctx context.Context) (issuer string, keys []byte, err error) {
	body, err := c.get(ctx, "application/json", ".well-known", "openid-configuration")
	if err != nil {
		return "", nil, fmt.Errorf("issuer of tokens: %w", err)
	}
	var config struct{ Issuer string }
	if err := json.Unmarshal(body, &config); err != nil || config.Issuer == "" {
		return "", nil, fmt.Errorf("issuer of tokens: the answer names no issuer: %s", hintNotKubernetes)
	}
	if keys, err = c.get(ctx, "application/jwk-set+json", "openid", "v1", "jwks"); err != nil {
		return "", nil, fmt.Errorf("keys of tokens: %w", err)
	}
	return config.Issuer, keys, nil
}
