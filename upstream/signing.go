package upstream

import (
	"context"
	"encoding/json"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// signingRequests is the path of the requests for certificates.
const signingRequests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// CreateSigningRequest creates a request for a certificate. If its name is taken, the error is AlreadyExists.
func (c *Cluster) CreateSigningRequest(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	r = r.DeepCopy()
	r.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	err = c.client.Post().AbsPath(signingRequests).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).MaxRetries(0).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("create certificatesigningrequests %s: %w", r.Name, err)
	}
	return nil
}

// SigningRequest returns a request for a certificate by its name, with its state.
func (c *Cluster) SigningRequest(
	ctx context.Context, name string,
) (*certificatesv1.CertificateSigningRequest, error) {
	body, err := c.get(ctx, runtime.ContentTypeJSON, signingRequests, name)
	if err != nil {
		return nil, fmt.Errorf("get certificatesigningrequests %s: %w", name, err)
	}
	r := &certificatesv1.CertificateSigningRequest{}
	if err := json.Unmarshal(body, r); err != nil || r.Name != name {
		return nil, fmt.Errorf("get certificatesigningrequests %s: the answer is no request: %s", name, hintNotKubernetes)
	}
	return r, nil
}

// DeleteSigningRequest deletes a request for a certificate, unless another one has its name now.
func (c *Cluster) DeleteSigningRequest(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	only := metav1.NewUIDPreconditions(string(r.UID))
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: only,
	})
	if err != nil {
		return err
	}
	err = c.client.Delete().AbsPath(signingRequests, r.Name).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).MaxRetries(0).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("delete certificatesigningrequests %s: %w", r.Name, err)
	}
	return nil
}

// CA returns the authorities by which this connection trusts the server in use, in PEM. They are empty if it
// trusts the machine's own, or any server.
func (c *Cluster) CA() ([]byte, error) {
	cfg := c.Anonymous()
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, fmt.Errorf("CA of the server: %w", err)
	}
	return cfg.CAData, nil
}
